--- deferred_entries: what is told of messages that are still to come.
--- @include ref, timetable

-- Of two transfers the one with the higher epoch counts, of one epoch that of the higher origin that journaled it.
local function is_higher_transfer(epoch, source, other_epoch, other_source)
  local one, other = tonumber(epoch), tonumber(other_epoch)
  return one > other or one == other and string.match(source, '^[^~]*') >= string.match(other_source, '^[^~]*')
end

-- What settles a message is kept; of transfers the one with the highest epoch. Given up when `until_ms` has passed.
local function defer_entry(queue_name, topic, source, entry, epoch, until_ms)
  local key, field = K.deferred(topic), queue_name .. ' ' .. source
  local known = call('HGET', key, field)
  known = known and cjson.decode(known)
  if known and (known.how ~= V.transferred or entry.how == V.transferred and is_higher_transfer(known.epoch, known.source, epoch, entry.source)) then
    return
  end
  call('HSET', key, field, cjson.encode({
    ends = string.format('%.0f', until_ms), how = entry.how, reason = entry.reason, by = entry[F.by], owner = entry.owner,
    epoch = epoch or '0', source = entry.source, path = entry.path, [F.consumer_reason] = entry[F.consumer_reason],
  }))
  add_due(until_ms, 'deferred ' .. topic, 'NX')
end

-- A part of those of a topic; visit(field, what is told) says whether it is dropped.
local function drop_deferred(topic, visit)
  local key, cursor = K.deferred(topic), '0'
  repeat
    local scanned = call('HSCAN', key, cursor, 'COUNT', 100)
    cursor = scanned[1]
    for i = 1, #scanned[2], 2 do
      if visit(scanned[2][i], cjson.decode(scanned[2][i + 1])) then call('HDEL', key, scanned[2][i]) end
    end
  until cursor == '0'
end

-- Everything of an origin up to an ID is here or never comes.
local function drop_deferred_up_to(topic, origin, upto)
  local last = order_of(upto)
  drop_deferred(topic, function(field)
    local by, id = string.match(field, ' ([^ ~]+)~(%S+)$')
    return by == origin and order_of(id) <= last
  end)
end

-- Time ends the waiting only where nothing carries that origin's log here: a transfer that is forgotten is a message without
-- an owner.
local function pass_deferred(topic, now)
  local least = nil
  drop_deferred(topic, function(field, told)
    local origin, ends = string.match(field, ' ([^ ~]+)~%S+$'), tonumber(told.ends)
    local is_carried = call('HEXISTS', K.received(), 'log ' .. topic .. '@' .. origin) == 1
    if ends <= now and not is_carried then return true end
    least = math.min(least or math.huge, math.max(ends, now + 60000))
  end)
  if least then add_due(least, 'deferred ' .. topic, 'NX') end
end
