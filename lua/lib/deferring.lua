--- deferring: what is told of messages that are still to come.

-- What settles a message is kept; of transfers the one with the highest epoch. Given up when `until_ms` has passed.
local function defer_told(queue_name, topic, source, entry, epoch, until_ms)
  local key, field = K.deferred(topic), queue_name .. ' ' .. source
  local known = call('HGET', key, field)
  known = known and cjson.decode(known)
  if known and (known.how ~= V.transferred or entry.how == V.transferred and tonumber(known.epoch) >= tonumber(epoch)) then
    return
  end
  call('HSET', key, field, cjson.encode({
    ends = string.format('%.0f', until_ms), how = entry.how, reason = entry.reason, by = entry[F.by], owner = entry.owner,
    epoch = epoch or '0', source = entry.source, path = entry.path,
  }))
  call('ZADD', K.due(), 'NX', until_ms, 'deferred ' .. topic)
end

-- One step of looking for what is over; the rest when the next is.
local function pass_deferred(topic, now)
  local key, cursor, least = K.deferred(topic), '0', nil
  repeat
    local scanned = call('HSCAN', key, cursor, 'COUNT', 100)
    cursor = scanned[1]
    for i = 1, #scanned[2], 2 do
      local ends = tonumber(cjson.decode(scanned[2][i + 1]).ends)
      if ends <= now then call('HDEL', key, scanned[2][i]) else least = math.min(least or ends, ends) end
    end
  until cursor == '0'
  if least then call('ZADD', K.due(), 'NX', least, 'deferred ' .. topic) end
end
