--- report_reader: a reader of topics says how far behind it is, and is told what to do.
--- ARGV now, reader, transport, state, behind, spooled, oldest, period, client, facts
--- GIVES {'', `offline` or `disconnect`, the reason, what is used, the limit}
--- FLAGS allow-oom
--- @include clock, fail, action_events, reader_pools
-- state: `replaying`, what counts for nothing; `online`; `durable`, what cannot be offlined; `offline`; '' ends it. behind,
-- spooled: bytes. oldest: ms when the earliest message was recorded that was not handed out; 0: there is none. period: ms
-- after which the reader counts as gone. facts: JSON, for people. Who is disconnected is told so again until that time.
local ms = clock_ms(now)
for _, gone in ipairs(call('ZRANGEBYSCORE', K.reporting(), '-inf', ms, 'LIMIT', 0, 10)) do
  leave_pools(gone)
  call('HDEL', K.readers(), gone)
  call('ZREM', K.reporting(), gone)
end
local former = call('HGET', K.readers(), reader)
if state == '' then
  leave_pools(reader)
  call('HDEL', K.readers(), reader)
  call('ZREM', K.reporting(), reader)
  return {'', '', 0, 0}
end
local reason, used, limit = string.match(former or '', '^%S+ %S+ disconnected %S+ %S+ %S+ (%S+) (%S+) (%S+)\n')
if reason then return {'disconnect', reason, tonumber(used), tonumber(limit)} end

local limits = limits_of(transport)
local memory, disk = 'memory ' .. limits.memory_pool, 'disk ' .. limits.disk_pool
local old_memory, old_disk = string.match(former or '', '^(%S+) (%S+) ')
if old_memory and (old_memory ~= limits.memory_pool or old_disk ~= limits.disk_pool) then leave_pools(reader) end
behind, spooled, oldest = tonumber(behind), tonumber(spooled), tonumber(oldest)
local counts = state == 'online' or state == 'durable'
set_pool_use(memory, reader, counts and behind or 0)
set_pool_use(disk, reader, state == 'offline' and behind + spooled or 0)

local order = ''
if state ~= 'replaying' and oldest > 0 and limits.age and ms - oldest > limits.age then
  order, reason, used, limit = 'disconnect', V.client_message_age_limit, ms - oldest, limits.age
elseif counts then
  reason, used, limit = pool_excess(memory, limits.memory, limits.share, reader, behind, V.message_memory_limit)
  if reason then order = state == 'durable' and 'disconnect' or 'offline' end
elseif state == 'offline' then
  reason, used, limit = pool_excess(disk, limits.disk, limits.share, reader, behind + spooled, V.message_disk_limit)
  if reason then order = 'disconnect' end
end
if order == 'offline' then
  -- At once, so that the next one is not sent after it for the same bytes.
  set_pool_use(memory, reader, 0)
  set_pool_use(disk, reader, behind)
  state = 'offline'
elseif order == 'disconnect' then
  set_pool_use(memory, reader, 0)
  set_pool_use(disk, reader, 0)
  state = 'disconnected'
  if has_listeners() then emit_event('disconnect', F.client, client, F.data, reason) end
end
local function whole(number) return string.format('%.0f', number or 0) end
local head = {limits.memory_pool, limits.disk_pool, state, whole(behind), whole(spooled), whole(oldest)}
if reason then head[7], head[8], head[9] = reason, whole(used), whole(limit) end
call('HSET', K.readers(), reader, table.concat(head, ' ') .. '\n' .. facts)
call('ZADD', K.reporting(), ms + period, reader)
return {order, reason or '', math.floor(used or 0), math.floor(limit or 0)}
