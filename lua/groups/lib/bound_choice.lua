--- bound_choice: the messages that go next where groups are bound to subscriptions: of what is bound, what its subscription has room for.
--- @include group_placing, group_turn_choice, group_batch_choice, group_turns, group_state, free_subscriptions
-- The lines of those that have room and that of what is not bound are one line, in the order of the queue. What is bound to a full one waits
-- for it; it goes to another only where that finds nothing else at all, unread messages among it, and nothing of its group is leased.

-- One whose page of those that are free may not be read yet.
local function join_room(room, queue, subscription)
  for _, each in ipairs(room.list) do
    if each == subscription then return end
  end
  room.known[subscription.id] = true
  subscription.score = current_score(queue, subscription)
  room.total = room.total + subscription.max - subscription.leased
  insert_subscription(room.list, subscription)
end

local function has_room(subscription)
  return subscription and subscription.leased < subscription.max
end

-- Groups whose binding is over by now: a bounded number. What something is leased of stays bound until that ends.
local function end_bindings(queue)
  local key, ms = K.bound(queue.name), clock_read.ms or clock_ms('')
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if not first then return end
  local is_set_back = first > ms + queue.affinity
  if first > ms and not is_set_back then return add_due(first, 'affinity ' .. queue.name, 'NX') end
  local names = call('ZRANGE', key, '-inf', is_set_back and '+inf' or ms, 'BYSCORE', 'LIMIT', 0, 200)
  call_in_batches('ZREM', key, names)
  local states = load_groups(queue, names)
  for _, state in pairs(states) do state.is_bound_anew = state.bound_to and state.bound_until > ms end
  save_groups(queue, states)
  first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if first then add_due(first, 'affinity ' .. queue.name, 'LT') end
end

-- Those that are free and have lines: of the fewer ones all are looked at.
local function free_ones_with_lines(queue, room)
  local fewer, more, found = K.lines(queue.name), room.key, {}
  if call('ZCARD', fewer) > call('ZCARD', more) then fewer, more = more, fewer end
  local ids = call('ZRANGE', fewer, 0, -1)
  for first = 1, #ids, 1000 do
    for i, score in ipairs(call('ZMSCORE', more, unpack(ids, first, math.min(first + 999, #ids)))) do
      if score then found[#found + 1] = ids[first + i - 1] end
    end
  end
  return found
end

-- Those that have room and something in their lines, each of which is in the room from now on.
local function subscriptions_with_lines(queue, room, own)
  local found, seen, ids = {}, {}, free_ones_with_lines(queue, room)
  if own and call('ZSCORE', K.lines(queue.name), own.id) then ids[#ids + 1] = own.id end
  for _, id in ipairs(ids) do
    local subscription = load_subscription(id)
    if has_room(subscription) and not seen[id] then
      seen[id], found[#found + 1] = true, subscription
      join_room(room, queue, subscription)
    end
  end
  return found
end

-- owner: the subscription whose line it is; nil: whoever is best may have it. line: nil of what is not bound.
local function open_line(queue, line, owner, count)
  local key = line and K.going_of(queue.name, line) or K.going(queue.name)
  return {key = key, line = line, owner = owner, items = {}, at = 1, read = 0, count = math.max(math.min(count, 100), 2), is_over = false}
end

-- The lines of what is not bound and of those that have room.
local function open_lines(queue, room, wanted, own)
  local lines = {open_line(queue, nil, nil, wanted)}
  for _, subscription in ipairs(subscriptions_with_lines(queue, room, own)) do
    local places = subscription.max - subscription.leased
    lines[#lines + 1] = open_line(queue, subscription.id, subscription, places)
    lines[#lines + 1] = open_line(queue, subscription.id .. '+', subscription, places)
  end
  return lines
end

-- The next ones of a line, with the states of their groups.
local function read_line(queue, line, found)
  local members, names = call('ZRANGE', line.key, line.read, line.read + line.count - 1, 'WITHSCORES'), {}
  line.items, line.at, line.read, line.is_over = {}, 1, line.read + #members / 2, #members / 2 < line.count
  for i = 1, #members, 2 do
    local item = item_of_member(members[i])
    if item then
      item.score, item.line = tonumber(members[i + 1]), line
      line.items[#line.items + 1] = item
      if not found.states[item.name] then names[#names + 1] = item.name end
    end
  end
  for name, state in pairs(load_groups(queue, names)) do found.states[name] = state end
  note_placed(queue, line.items)
end

local function comes_before(item, other)
  return not other or item.score < other.score or item.score == other.score and item.ref < other.ref
end

-- The first of all lines; nil: there is nothing for anybody who has room. followers: what comes next of groups of which something was taken,
-- before anything that a full one would have to give up.
local function next_item(queue, lines, followers, found)
  local first, at
  for i, item in ipairs(followers) do
    if (not item.owner or has_room(item.owner)) and comes_before(item, first) then first, at = item, i end
  end
  for _, line in ipairs(first and first.owner and lines.are_of_full and {} or lines) do
    if not line.owner or has_room(line.owner) then
      if not line.items[line.at] and not line.is_over then read_line(queue, line, found) end
      local item = line.items[line.at]
      if item and comes_before(item, first) then first, at = item, line end
    end
  end
  if type(at) == 'number' then
    table.remove(followers, at)
  elseif at then
    at.at = at.at + 1
  end
  return first
end

-- By another definition a group may stand elsewhere, several times, or without a turn; and what stands there may be of a list that is void.
local function stands_wrongly(queue, item, state)
  return state and item.stands and (state.going ~= 1 or state.before or queue.choice and not state.turn or state.line ~= item.line.line)
end

-- Puts groups in their places. items: of each what was met.
local function mend_places(queue, items, states)
  local wrong, lines = {}, {}
  for _, item in ipairs(items) do
    local state = states[item.name]
    wrong[item.name] = state
    call('ZREM', item.line.key, item.stands)
    if item.line.line then lines[item.line.line] = true end
    local key = going_key(queue, state)
    for _, place in ipairs(state.before or places_in_group(queue, state, 0, state.going)) do call('ZREM', key, place .. item.name) end
    if state.line then lines[state.line] = true end
    state.going, state.before = 0, nil
  end
  save_groups(queue, wrong, true)
  note_lines(queue, lines)
end

-- The message that is next of a group and those that go with it to one subscription. Notes what leaves the lists.
local function entries_of_item(queue, item, state, most, chosen, found, now)
  local entries, items, bytes, passed = {}, {item}, chosen.bytes, state and state.passed or 0
  if most > 1 then
    local following = items_in_group(queue, state, passed + 1, most - 1, is_held(queue, state))
    read_items(queue, following, found.read)
    note_placed(queue, following)
    for i, each in ipairs(following) do items[i + 1] = each end
  end
  for i, each in ipairs(items) do
    if bytes >= V.bytes or i > 1 and not entries[1] then break end
    local entry, ends = fit_entry(queue, found, each, now)
    found.items[#found.items + 1] = each
    passed = passed + 1
    if entry then
      entries[#entries + 1], bytes = {each.ref, entry, ends}, bytes + size_of_fields(entry)
      if state then take_room(queue, state) end
    end
  end
  if state then state.passed = passed end
  return entries
end

local function size_for(queue, chosen, subscription, state, wanted)
  local most = size_of_batch(queue, chosen, subscription, state, wanted)
  return queue.batch and most or math.min(most, 1)
end

-- Gives entries of a group to a subscription, to which it is bound from now on.
local function give_bound(queue, room, chosen, subscription, name, state, entries, now)
  for i, each in ipairs(room.list) do
    if each == subscription then
      table.insert(room.list, 1, table.remove(room.list, i))
      break
    end
  end
  choose_batch(queue, room, chosen, subscription, name, entries, state and bind(queue, state, subscription, now))
end

-- Takes from lines what its subscription has room for. Gives what stands wrongly, or nothing where the lines are over.
local function take_from_lines(queue, room, lines, chosen, wanted, found, now)
  local round, followers, wrong = queue.choice and load_round(queue), {}, nil
  while #chosen.refs < wanted and #found.items < V.batch and chosen.bytes < V.bytes do
    local item = next_item(queue, lines, followers, found)
    local owner = item and (item.owner or item.line and item.line.owner)
    local subscription = item and (owner or best_free(room))
    if not subscription then
      wrong = {}
      break
    end
    local state = found.states[item.name]
    if stands_wrongly(queue, item, state) then
      wrong = {item}
      break
    end
    if state then found.changed[item.name] = state end
    -- By another definition a group may have no room; saving it takes it out of its line.
    local most = (not state or not stands_still(state)) and size_for(queue, chosen, subscription, state, wanted) or 0
    if most > 0 then
      if item.stands then found.standing[#found.standing + 1] = item end
      local entries = entries_of_item(queue, item, state, most, chosen, found, now)
      if round and entries[1] then
        local turn = take_turn(round, turn_of_place(item.score))
        if state then state.turn = turn end
      end
      if entries[1] then give_bound(queue, room, chosen, subscription, item.name, state, entries, now) end
      local following = state and following_item(queue, state, wanted - #chosen.refs, found.read)
      if following then
        following.owner = entries[1] and subscription or owner
        followers[#followers + 1] = following
      end
    end
  end
  if round then save_round(queue, round) end
  return wrong
end

-- What left the lines leaves its groups, whose next ones stand in them from now on.
local function leave_lines(queue, found)
  local lines = {}
  for _, item in ipairs(found.standing) do
    call('ZREM', item.line.key, item.stands)
    if item.line.line then lines[item.line.line] = true end
  end
  leave_line(queue, found)
  note_lines(queue, lines)
end

-- opens: gives the lines. Takes what may go, in the order of the queue. Whether there is no more of it for those that have room.
local function choose_from_lines(queue, room, opens, chosen, wanted, now, own)
  local looked = 0
  while #chosen.refs < wanted do
    if chosen.bytes >= V.bytes or looked >= V.batch then return false end
    local found = empty_findings({})
    found.standing = {}
    local wrong = take_from_lines(queue, room, opens(queue, room, wanted - #chosen.refs, own), chosen, wanted, found, now)
    leave_lines(queue, found)
    if wrong and not wrong[1] then return true end
    if wrong then mend_places(queue, wrong, found.states) end
    looked = looked + math.max(#found.items, 1)
  end
  return false
end

local function choose_bound(queue, room, chosen, wanted, now, own)
  return choose_from_lines(queue, room, open_lines, chosen, wanted, now, own)
end

-- The lines of those that have no room, of groups of which nothing is leased. A hundred are more than one call gives from.
local function open_lines_of_full(queue, room, wanted)
  local lines = {are_of_full = true}
  for _, id in ipairs(call('ZRANGE', K.lines(queue.name), 0, 0, 'BYSCORE', 'LIMIT', 0, 100)) do
    if not has_room(load_subscription(id)) then lines[#lines + 1] = open_line(queue, id, nil, wanted) end
  end
  return lines
end

local function choose_of_full(queue, room, chosen, wanted, now)
  return choose_from_lines(queue, room, open_lines_of_full, chosen, wanted, now)
end

-- To whom an unread message of a group may go; nil: it has to wait.
local function seat_of(queue, room, state)
  if state then review_binding(queue, state) end
  if not state or not state.bound_to then return best_free(room) end
  local subscription = load_subscription(state.bound_to)
  if not has_room(subscription) then return nil end
  join_room(room, queue, subscription)
  return subscription
end

-- Each message by itself, where there are no batches.
local function bundles_of(queue, names)
  if queue.batch then return places_by_group(names) end
  local bundles = {}
  for i, name in ipairs(names) do bundles[i] = {name = name, i} end
  return bundles
end

-- As `choose_unread_batches`.
local function choose_unread_bound(queue, plan, room, chosen, wanted, now)
  local step = wanted - #chosen.refs
  while #chosen.refs < wanted do
    if plan.spent.work >= V.sort_work or chosen.bytes >= V.bytes then return false end
    local messages = read_grouped(queue, plan, step, true, now)
    local states, refs, names = load_groups(queue, messages.names), {}, {}
    for _, bundle in ipairs(bundles_of(queue, messages.names)) do
      local state, most, entries = states[bundle.name], 0, {}
      local may_go = not state or state.waiting == 0 and state.held == 0 and not stands_still(state)
      local subscription = may_go and seat_of(queue, room, state)
      if subscription then most = size_for(queue, chosen, subscription, state, wanted) end
      for i, place in ipairs(bundle) do
        local ref = messages.refs[place]
        if i <= most then
          entries[i] = {ref, messages.fields[place], messages.ends[place]}
          if state then take_room(queue, state) end
        else
          refs[#refs + 1], names[#names + 1] = ref, bundle.name
          -- What comes behind it in its group waits with it.
          if state then state.waiting = state.waiting + 1 end
        end
      end
      if entries[1] then give_bound(queue, room, chosen, subscription, bundle.name, state, entries, now) end
    end
    for _, name in ipairs(names) do
      if name ~= '' then states[name].waiting = states[name].waiting - 1 end
    end
    keep_waiting(queue, plan, states, messages, refs, names, now)
    save_groups(queue, states)
    if messages.number == 0 and (messages.exhausted or not messages.cut) then return true end
    if messages.exhausted then return true end
    -- Where some have to wait, more is read than is wanted, so that it is not a step a message; else what is read in vain has to be kept.
    step = refs[1] and 100 or wanted - #chosen.refs
  end
  return false
end
