--- list_groups: a part of a queue's groups, or those that are named.
--- ARGV queue_name, cursor, count, names...
--- FAIL UNKNOWN_QUEUE
--- GIVES {cursor of the next part or '0', group, leased, may go, waiting, failed, ms when it was stopped or 0, its weight, its first ref or '', ms when it was paused or 0, who paused it or '', `<subscription> <ms> <client>` to which it is bound and until when or '', ...}
--- FLAGS no-writes, allow-oom
--- @include fail, queue, group_state
-- Only what has its place, or is listed, is in a group: what else is unread is in none yet. The first ref, and the client, are looked for where groups are named.
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local names, following = {unpack(ARGV, names_from)}, '0'
local is_named = names[1] ~= nil
if not is_named then
  local scanned = call('HSCAN', K.groups(queue_name), cursor, 'COUNT', count)
  following = scanned[1]
  for i = 1, #scanned[2], 2 do
    if #scanned[2][i] <= V.longest_group then names[#names + 1] = scanned[2][i] end
  end
end
local reply, states = {following}, queue.concurrency and load_groups(queue, names) or {}
for _, name in ipairs(names) do
  local state = states[name]
  if state and not is_over(state) then
    local first = is_named and string.match(places_in_group(queue, state, 0, 1)[1] or '', '^%S+') or ''
    local bound = state.bound_to and state.bound_to .. ' ' .. string.format('%.0f', state.bound_until) .. ' ' or ''
    if is_named and state.bound_to then bound = bound .. (call('HGET', K.subscription(state.bound_to), F.client) or '') end
    local values = {name, state.leased, state.going, state.waiting, state.held, state.stopped, state.weight, first, state.paused or 0, state.paused_by or '', bound}
    for _, value in ipairs(values) do reply[#reply + 1] = value end
  end
end
return reply
