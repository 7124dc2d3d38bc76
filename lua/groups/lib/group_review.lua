--- group_review: by another definition other messages of a queue's groups may go, or in another order: a bounded step, until all were looked at.
--- @include group_state(), queue, timetable

-- Messages that are in no group stand where what may go stands: in the order of arrival, or each with a turn of its own, which one
-- that has it keeps.
local function review_groupless(queue, cursor)
  local scanned, refs, turns = call('ZSCAN', K.going(queue.name), cursor, 'COUNT', 100), {}, {}
  for i = 1, #scanned[2], 2 do
    local ref, name = string.match(scanned[2][i], '^(%S+) (.*)$')
    if name == '' then refs[#refs + 1], turns[#turns + 1] = ref, tonumber(scanned[2][i + 1]) end
  end
  group_state().place_groupless(queue, refs, turns)
  return scanned[1]
end

-- cursor: of the groups, or behind the word `groupless` of what may go.
local function review_definition(queue, cursor, now)
  if not queue.concurrency then return end
  local groupless = string.match(cursor, '^groupless (%d+)$')
  if groupless then
    local following = review_groupless(queue, groupless)
    if following ~= '0' then return add_due(now, 'groups ' .. queue.name .. ' groupless ' .. following) end
    return add_due(now, 'dispatch ' .. queue.name, 'NX')
  end
  local scanned, names = call('HSCAN', K.groups(queue.name), cursor, 'COUNT', 100), {}
  for i = 1, #scanned[2], 2 do
    if #scanned[2][i] <= V.longest_group then names[#names + 1] = scanned[2][i] end
  end
  group_state().review_groups(queue, names)
  if scanned[1] ~= '0' then return add_due(now, 'groups ' .. queue.name .. ' ' .. scanned[1]) end
  add_due(now, 'groups ' .. queue.name .. ' groupless 0')
end
