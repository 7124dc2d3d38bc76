--- reader_pools: what the readers that report use together, and who uses most.

-- A transport's own limits, and those of the instance where it gives none; nil: no limit. Whose pool: who gives the limit.
local function limits_of(transport)
  local out = {memory_pool = '*', disk_pool = '*'}
  for _, name in ipairs({'*', transport}) do
    local memory, disk, share, age = string.match(call('HGET', K.limits(), name) or '', '^(%S+) (%S+) (%S+) (%S+)$')
    out.memory, out.disk = tonumber(memory) or out.memory, tonumber(disk) or out.disk
    out.share, out.age = tonumber(share) or out.share, tonumber(age) or out.age
    if tonumber(memory) then out.memory_pool = name end
    if tonumber(disk) then out.disk_pool = name end
  end
  return out
end

local function set_pool_use(pool, reader, bytes)
  local former = tonumber(call('ZSCORE', K.uses(pool), reader) or 0)
  if bytes > 0 then call('ZADD', K.uses(pool), bytes, reader) else call('ZREM', K.uses(pool), reader) end
  if bytes == former then return end
  local total = call('HINCRBY', K.pools(), pool, string.format('%.0f', bytes - former))
  if total <= 0 then call('HDEL', K.pools(), pool) end
end

-- What a reader used; a pool that it does not use any more, since definitions changed, included.
local function leave_pools(reader)
  local record = call('HGET', K.readers(), reader)
  local memory, disk = string.match(record or '', '^(%S+) (%S+) ')
  if not memory then return end
  set_pool_use('memory ' .. memory, reader, 0)
  set_pool_use('disk ' .. disk, reader, 0)
end

-- Whether the reader has more than its share, or uses most of a pool that has too much: the reason, use and limit, or nil.
local function pool_excess(pool, limit, share, reader, bytes, name)
  if not limit then return nil end
  local most = limit * (share or 100) / 100
  if bytes > most then return (share or 100) < 100 and V.client_max_capacity or name, bytes, most end
  local total = tonumber(call('HGET', K.pools(), pool) or 0)
  if total > limit and call('ZREVRANGE', K.uses(pool), 0, 0)[1] == reader then return name, total, limit end
  return nil
end
