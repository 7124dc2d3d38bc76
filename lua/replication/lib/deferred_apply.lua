--- deferred_apply: what was told of messages before they came is done when they come. Included as `deferred_apply()`.
--- @include journal_entries, foreign_bookmarks, dispatch

-- known: ID there and ID here in turn.
local function apply_deferred(topic, routed, origin, known, now)
  local freed = {}
  for name in string.gmatch(routed, '[^%s*]+') do
    local fields = {}
    for i = 1, #known, 2 do fields[#fields + 1] = name .. ' ' .. origin .. '~' .. known[i] end
    local found = call('HMGET', K.deferred(topic), unpack(fields))
    for i, text in ipairs(found) do
      local entry = text and cjson.decode(text)
      if entry then
        local here = known[2 * i]
        entry[F.attempts], entry[F.returns], entry.late = '', '', true
        entry[F.consumer_reason] = entry[F.consumer_reason] or ''
        if entry.how ~= V.transferred or is_counting_bookmark(topic, here, origin .. '~' .. known[2 * i - 1]) then
          local named = topic .. '~' .. origin .. '~' .. known[2 * i - 1]
          follow_journal(load_queue(name), entry, {ref_of(topic, here)}, {entry.epoch}, {named}, freed, now)
        end
        call('HDEL', K.deferred(topic), fields[i])
      end
    end
  end
  free_room(freed, now, '')
end
