--- commit_job: decide which attempts at the partitions of an epoch of a job count, for ever: those named first.
--- ARGV now, job, epoch, lanes...
--- FAIL STAGE_LOST, OTHER_PROTOCOL, EPOCH_PAST
--- GIVES {epoch, lane, attempt, rows, recorded...} of the epoch that is to be recorded now, or {} when this one is already
--- @include clock, fail
-- lanes: of each lane that has rows its name, the attempt and its rows. Lanes of other instances are noted alone. An earlier
-- epoch that was decided and not finished comes first: the caller records it, and calls again.
local ms = string.format('%.0f', clock_ms(now))
local last, status = string.match(call('HGET', K.jobs(), job) or '', '^(%d+) (%w+)')
last, epoch = tonumber(last or -1), tonumber(epoch)
if status == 'open' then
  local reply = {string.format('%.0f', last)}
  local manifest = call('HGETALL', K.manifest(job))
  for i = 1, #manifest, 2 do
    local attempt, rows, recorded = string.match(manifest[i + 1], '^(%S+) (%d+) (%d+)$')
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = manifest[i], attempt, rows, recorded
  end
  return reply
end
if epoch == last and status ~= 'done' then fail(E.OTHER_PROTOCOL, {job = job, epoch = epoch, begun = 'sequence'}) end
if epoch < last then fail(E.EPOCH_PAST, {job = job, epoch = epoch, last = last}) end
if epoch == last then return {} end
local own, mine = string.sub(P, 2, -2) .. '/', {}
for i = lanes_from, #ARGV, 3 do
  if string.sub(ARGV[i], 1, #own) == own then mine[#mine + 1] = K.stage(job, ARGV[i], ARGV[i + 1]) end
end
for _, key in ipairs(mine) do
  if call('EXISTS', key) == 0 then fail(E.STAGE_LOST, {job = job, epoch = epoch, key = key}) end
end
local text = string.format('%.0f', epoch)
local reply = {text}
for i = lanes_from, #ARGV, 3 do
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = ARGV[i], ARGV[i + 1], ARGV[i + 2], '0'
  call('HSET', K.manifest(job), ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ' 0')
end
for _, key in ipairs(mine) do call('PERSIST', key) end
call('HSET', K.jobs(), job, text .. (#reply > 1 and ' open ' or ' done ') .. ms)
return #reply > 1 and reply or {}
