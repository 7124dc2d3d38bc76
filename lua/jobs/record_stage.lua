--- record_stage: record the next rows that a committed attempt has put aside.
--- ARGV now, job, epoch, lane, most
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, STAGE_LOST, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES rows of the lane that are left
--- @include clock, fail, job_rows
-- They leave the list in the same step, so that each is recorded once, however often and by whomever this is called. most: how
-- many rows at most, where a call's rows are too many to read: their topic was given a key since they were put aside. '': a call's.
local last = string.match(call('HGET', K.jobs(), job) or '', '^(%d+) open')
if last ~= epoch then return 0 end
local attempt, rows, recorded = string.match(call('HGET', K.manifest(job), lane) or '- 0 0', '^(%S+) (%d+) (%d+)$')
rows, recorded = tonumber(rows), tonumber(recorded)
if recorded >= rows then return 0 end
local key = K.stage(job, lane, attempt)
local head = call('LINDEX', key, 0)
if not head then fail(E.STAGE_LOST, {job = job, epoch = tonumber(epoch), lane = lane, rows = rows, recorded = recorded}) end
local number, shape, name = string.match(head, '^(%d+) (%l+) (.*)$')
number = tonumber(number)
local taken = math.min(number, (tonumber(most) or number) * #shape)
local values = call('LRANGE', key, 1, taken)
local recordings = open_rows(name, shape, values, 1, job .. '/' .. string.match(lane, '%d+$'), clock_ms(now))

record_rows(recordings)
call('LTRIM', key, taken + 1, -1)
if taken < number then call('LPUSH', key, string.format('%d %s %s', number - taken, shape, name)) end
recorded = recorded + taken / #shape
call('HSET', K.manifest(job), lane, string.format('%s %.0f %.0f', attempt, rows, recorded))
return rows - recorded
