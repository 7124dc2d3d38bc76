--- arrived: what was told of messages before they came is done when they come. Included as `arrived()`.
--- @include told, dispatch

-- known: ID there and ID here in turn.
local function settle_arrived(topic, routed, origin, known, now)
  local freed = {}
  for name in string.gmatch(routed, '[^%s*]+') do
    local fields = {}
    for i = 1, #known, 2 do fields[#fields + 1] = name .. ' ' .. origin .. '~' .. known[i] end
    local found = call('HMGET', K.deferred(topic), unpack(fields))
    for i, text in ipairs(found) do
      if text then
        local entry = cjson.decode(text)
        entry[F.attempts], entry[F.returns] = '', ''
        follow_told(load_queue(name), entry, {ref_of(topic, known[2 * i])}, {entry.epoch}, freed, now)
        call('HDEL', K.deferred(topic), fields[i])
      end
    end
  end
  free_room(freed, now, '')
end
