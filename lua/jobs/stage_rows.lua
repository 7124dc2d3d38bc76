--- stage_rows: put the next rows of one attempt at a job's partition aside, to be recorded when the job is committed.
--- ARGV now, name, job, lane, attempt, length, ttl, shape, values...
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, SEQUENCE_GAP, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES how long the attempt's list is
--- @include clock, fail, job_rows
-- lane: `<instance>/<partition>`. length: how long the list is before these; ttl: ms for which they are kept if nobody commits
-- them. In the list a head `<values> <shape> <name>` stands before each call's values. Twice is as once.
local key = K.stage(job, lane, attempt)
local there, number = call('LLEN', key), #ARGV - values_from + 1
length = tonumber(length)
if there > length then return length + 1 + number end
if there ~= length then fail(E.SEQUENCE_GAP, {publisher = job .. '/' .. lane, expected = there, got = length}) end
open_rows(name, shape, ARGV, values_from, '', clock_ms(now))
call('RPUSH', key, number .. ' ' .. shape .. ' ' .. name, unpack(ARGV, values_from))
call('PEXPIRE', key, ttl)
return length + 1 + number
