--- group_review: by another definition other messages of a queue's groups may go: a bounded step, until all groups were looked at.
--- @include group_state(), queue, timetable
local function review_definition(queue, cursor, now)
  if not queue.concurrency then return end
  local scanned, names = call('HSCAN', K.groups(queue.name), cursor, 'COUNT', 100), {}
  for i = 1, #scanned[2], 2 do
    if #scanned[2][i] <= V.longest_group then names[#names + 1] = scanned[2][i] end
  end
  group_state().review_groups(queue, names)
  if scanned[1] ~= '0' then return add_due(now, 'groups ' .. queue.name .. ' ' .. scanned[1]) end
  add_due(now, 'dispatch ' .. queue.name, 'NX')
end
