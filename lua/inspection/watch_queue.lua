--- watch_queue: let a queue tell for a while which messages' availability may have changed; again before the while is over.
--- ARGV now, queue_name, period
--- FAIL UNKNOWN_QUEUE
--- GIVES {last ID of its events, ms since when it tells without a gap}
--- @include clock, fail, timetable
-- `watched` is until when and since when, ms; the sweep ends it.
if call('HEXISTS', K.queues(), queue_name) == 0 then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local ms = clock_ms(now)
local ends, since = string.match(call('HGET', K.queue(queue_name), F.watched) or '', '^(%d+) (%d+)$')
local deadline = math.max(ms + period, tonumber(ends or 0))
-- A clock that went far back would let it tell for ever.
if deadline > ms + 3600000 then deadline = ms + period end
since = since or string.format('%.0f', ms)
call('HSET', K.queue(queue_name), F.watched, string.format('%.0f', deadline) .. ' ' .. since)
add_due(deadline, 'watch ' .. queue_name)
local last = call('XREVRANGE', K.events(queue_name), '+', '-', 'COUNT', 1)[1]
return {last and last[1] or '0-0', since}
