--- want_name: ask for the topic or queue of a name that is used first, where the caller may not define it.
--- ARGV now, name
--- GIVES 1 where it was asked for, 0 where the caller may define it
--- @include clock, fail, timetable
-- A coordinator makes what was asked for. Whoever still waits asks again, so that the oldest may go where there are too many.
local ms = clock_ms(now)
if redis.acl_check_cmd('HSET', K.topics(), name, '{}') then return 0 end
if call('ZCARD', K.wanted()) >= V.wanted then call('ZREMRANGEBYRANK', K.wanted(), 0, 0) end
call('ZADD', K.wanted(), ms, name)
wake_coordinator('names')
return 1
