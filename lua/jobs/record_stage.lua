--- record_stage: record the next rows that a committed attempt has put aside.
--- ARGV now, job, epoch, lane
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, STAGE_LOST, MISSING_KEY, UNREAD_BODY, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES rows of the lane that are left
--- @include clock, fail, job_rows
-- They leave the list in the same step, so that each is recorded once, however often and by whomever this is called.
local last = string.match(call('HGET', K.jobs(), job) or '', '^(%d+) open')
if last ~= epoch then return 0 end
local attempt, rows, recorded = string.match(call('HGET', K.manifest(job), lane) or '- 0 0', '^(%S+) (%d+) (%d+)$')
rows, recorded = tonumber(rows), tonumber(recorded)
if recorded >= rows then return 0 end
local key = K.stage(job, lane, attempt)
local head = call('LINDEX', key, 0)
if not head then fail(E.STAGE_LOST, {job = job, epoch = tonumber(epoch), lane = lane, rows = rows, recorded = recorded}) end
local number, shape, name = string.match(head, '^(%d+) (%l+) (.*)$')
local values = call('LRANGE', key, 1, number)
local recordings = open_rows(name, shape, values, 1, job .. '/' .. string.match(lane, '%d+$'), clock_ms(now))

record_rows(recordings)
call('LTRIM', key, number + 1, -1)
recorded = recorded + number / #shape
call('HSET', K.manifest(job), lane, string.format('%s %.0f %.0f', attempt, rows, recorded))
return rows - recorded
