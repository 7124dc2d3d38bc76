--- pinned_entries: single messages that somebody has asked to keep.
--- @include ref

-- ids: in turn. Both they and the pins are in the order of refs.
local function mark_pinned(topic, ids, needed)
  local from, to, at = '[' .. order_of(ids[1]), '[' .. order_of(ids[#ids]) .. ' \255', 1
  for _, member in ipairs(call('ZRANGE', K.pins(topic), from, to, 'BYLEX')) do
    local order, holder = string.match(member, '^(%S+) (.*)$')
    while ids[at] and order_of(ids[at]) < order do at = at + 1 end
    if ids[at] and order_of(ids[at]) == order then needed[at] = needed[at] or holder end
  end
end
