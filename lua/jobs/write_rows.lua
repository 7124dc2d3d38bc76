--- write_rows: record the next rows of a job's partition, unless another attempt at it recorded them before.
--- ARGV now, name, job, partition, epoch, rows, sum, sum_after, shape, values...
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, SEQUENCE_GAP, ROWS_DIFFER, OTHER_PROTOCOL, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES {rows that the partition has in this epoch, their checksum}; {-1, ''} of an epoch that a later one followed
--- @include clock, fail, job_rows
-- rows, sum: how many rows of this partition and epoch come before these, and their checksum; sum_after: with these. Where
-- more are recorded, nothing is: the caller compares. Without values it only asks. shape: as of `open_rows`.
local ms = clock_ms(now)
local publisher = job .. '/' .. partition
local last_epoch, known, known_sum = string.match(call('HGET', K.partitions(), publisher) or '', '^(%d+) (%d+) (%d+)')
last_epoch, known = tonumber(last_epoch or -1), tonumber(known or 0)
epoch, rows = tonumber(epoch), tonumber(rows)
if epoch < last_epoch then return {-1, ''} end
if epoch > last_epoch then known, known_sum = 0, '0' end
local job_epoch, highest = -1, '-1'
if known == 0 then
  job_epoch, highest = string.match(call('HGET', K.jobs(), job) or '-1 -1', '^(%S+) (%S+)')
  job_epoch = tonumber(job_epoch)
  -- Also of a partition that the later one did not have.
  if epoch < job_epoch then return {-1, ''} end
end
if rows < known or values_from > #ARGV then return {known, known_sum} end
if rows > known then fail(E.SEQUENCE_GAP, {publisher = publisher, expected = known, got = rows, epoch = epoch}) end
if sum ~= known_sum then fail(E.ROWS_DIFFER, {publisher = publisher, rows = rows, epoch = epoch}) end
if highest == 'open' or job_epoch == epoch and highest == 'done' then
  fail(E.OTHER_PROTOCOL, {job = job, epoch = job_epoch, begun = 'staged'})
end
local recordings = open_rows(name, shape, ARGV, values_from, publisher, ms)

record_rows(recordings)
rows = rows + (#ARGV - values_from + 1) / #shape
local texts = {}
for i, number in ipairs({epoch, rows, sum_after, ms}) do texts[i] = string.format('%.0f', number) end
call('HSET', K.partitions(), publisher, table.concat(texts, ' '))
-- The highest partition of the epoch: a job that is run again must be cut as it was.
if known == 0 and (job_epoch < epoch or job_epoch == epoch and tonumber(highest) < tonumber(partition)) then
  call('HSET', K.jobs(), job, texts[1] .. ' ' .. partition .. ' ' .. texts[4])
end
return {rows, sum_after}
