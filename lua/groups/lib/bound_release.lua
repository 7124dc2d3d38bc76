--- bound_release: groups that are bound to a subscription which left their queue are bound to none.
--- @include group_state, timetable

-- Groups of which something waits for a subscription that left the queue are bound to it no more: a bounded step.
local function release_line(queue, id)
  for _, line in ipairs({id, id .. '+'}) do
    local names = call('ZRANGE', K.going_of(queue.name, line), 0, 199)
    for i, member in ipairs(names) do names[i] = string.match(member, '^%S+%s(.*)$') end
    if names[1] then
      save_groups(queue, load_groups(queue, names))
      return add_due(clock_read.ms or clock_ms(''), 'affinity ' .. queue.name .. ' ' .. id, 'NX')
    end
  end
end
