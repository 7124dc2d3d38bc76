--- forget_publishers: let go of the sequences of publishers that were not heard of for long, a part of them a call.
--- ARGV now, cursor
--- GIVES the cursor of the next call, '0' after the last
--- FLAGS allow-oom
--- @include clock, fail
-- Publishers of definitions here (`action:<name>@<origin>:...`, `view:<name>`) stay: they may be told twice of what is long ago.
local ms, own = clock_ms(now), call('HGET', K.instance(), F.origin)
local scanned = call('HSCAN', K.publishers(), cursor, 'COUNT', V.batch)
local old = {}

-- Whether a partition's job is known no more, or let go of now. One that goes on keeps what is known of all its partitions, and
-- what it has decided and not recorded yet stays.
local function ends_job(name)
  local job = string.match(name, '^(.*)/%d+$')
  local status, since = string.match(job and call('HGET', K.jobs(), job) or '', '^%d+ (%w+) (%d+)$')
  if not status then return true end
  if status == 'open' or tonumber(since) + V.publisher_age >= ms then return false end
  call('HDEL', K.jobs(), job)
  return true
end

for i = 1, #scanned[2], 2 do
  local name, last = scanned[2][i], string.match(scanned[2][i + 1], '^%d+ (%d+)%-')
  local is_own_action = string.find(name, '^action:') and string.find(name, '@' .. own .. ':', 1, true)
  local defined = is_own_action or string.find(name, '^view:')
  if not defined and last and tonumber(last) + V.publisher_age < ms and ends_job(name) then old[#old + 1] = name end
end
if #old > 0 then
  call('HDEL', K.publishers(), unpack(old))
  call('HDEL', K.sessions(), unpack(old))
  for _, name in ipairs(old) do call('HDEL', K.sequences(), name, name .. ' open', name .. ' after') end
  call('HDEL', K.partitions(), unpack(old))
end
return scanned[1]
