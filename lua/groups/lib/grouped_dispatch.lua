--- grouped_dispatch: dispatch for a queue with groups: the oldest message whose group has room, or the first one of the group whose turn it is, to the best free subscription.
--- @include group_placing, group_leaving, freed_groups, group_turn_choice, group_batch_choice, bound_choice, group_state, listing, free_subscriptions, chosen_handover, index_places, choice, bells
-- What has come back has its place in its group before anything is given. The logs are read as far as somebody needs; what
-- is read there and has to wait is older than what is unread, so what may go of it comes first.

-- Of what was freed in this call, where the oldest goes first, what is among the first ones joins them, the rest stands among what may go.
local function join_oldest(queue, items, count)
  local left = {}
  for _, item in ipairs(take_freed(queue)) do
    local i = #items
    while i > 0 and items[i].ref > item.ref do
      items[i + 1] = items[i]
      i = i - 1
    end
    items[i + 1] = item
  end
  for i = #items, count + 1, -1 do
    if items[i].is_freed then left[#left + 1] = items[i] end
    items[i] = nil
  end
  if left[1] then save_standing(queue, left) end
end

-- The oldest that may go; whether these are all.
local function first_going(queue, count)
  local members, items = call('ZRANGE', K.going(queue.name), 0, count - 1), {}
  for _, member in ipairs(members) do items[#items + 1] = item_of_member(member) end
  local are_all = #items < count
  if queue.freed then join_oldest(queue, items, count) end
  return items, are_all
end

-- Of what joined those that are not given stand among what may go, as they would have before.
local function keep_oldest(queue, items, states)
  local left = {}
  for _, item in ipairs(items) do
    if item.is_freed then left[#left + 1] = item end
  end
  if left[1] then stand_freed(queue, left, states) end
end

-- Of what may go that which may not: it left the queue, is missing from its log, its life is over, or by another definition its
-- group has no room. It makes room for others, which may be older than the rest. Whether there was none; the others have their fields then, as
-- `entry`, and `ends`.
local function drop_unfit(queue, states, items, now)
  note_placed(queue, items)
  local missing, over, gone, is_crowded = {}, {}, {}, false
  local taken, read = {}, read_items(queue, items, {})
  for _, item in ipairs(items) do
    local name, ref, state, placed = item.name, item.ref, states[item.name], item.is_placed
    local entry, fate, ends = placed and (read[ref] or fields_of_ref(ref)), nil, nil
    if entry and (#entry > 2 or queue.life > 0) then fate, ends = fate_of(queue, ref, entry, true, now) end
    item.entry, item.ends = entry, ends or false
    if not entry or fate then
      gone[#gone + 1] = item
      local list = fate and over or placed and missing or nil
      if list then list[#list + 1] = ref end
    elseif state then
      taken[name] = (taken[name] or 0) + 1
      is_crowded = is_crowded or stands_still(state) or taken[name] > room_of_group(queue, state)
    end
  end
  if not gone[1] and not is_crowded then return true end
  leave_groups(queue, states, gone)
  keep_oldest(queue, items, states)
  save_groups(queue, states)
  leave_places(queue, gone)
  settle_missing(queue, missing)
  expire_read(queue, over)
  return false
end

-- Takes what may go. Whether there is no more of it.
local function choose_going(queue, chosen, wanted, now)
  local looked = 0
  while #chosen.refs < wanted do
    if chosen.bytes >= V.bytes or looked >= V.batch then return false end
    local items, are_all = first_going(queue, wanted - #chosen.refs)
    if not items[1] then return true end
    looked = looked + #items
    local names = {}
    for i, item in ipairs(items) do names[i] = item.name end
    local states = load_groups(queue, names)
    if drop_unfit(queue, states, items, now) then
      local taken = {}
      for i, item in ipairs(items) do
        if chosen.bytes >= V.bytes then break end
        taken[i] = item
        choose(chosen, item.ref, item.entry, item.ends, item.name)
        local state = states[item.name]
        if state then take_room(queue, state) end
      end
      leave_groups(queue, states, taken)
      keep_oldest(queue, items, states)
      local may_more_go = save_groups(queue, states)
      leave_places(queue, taken)
      if are_all and not may_more_go and #taken == #items then return true end
    end
  end
  return false
end

-- Reads the logs until enough is found, or the work is done. What has to wait has its place then. Whether the end of all logs was seen.
local function choose_unread(queue, plan, chosen, wanted, now)
  local step, states, is_over = wanted - #chosen.refs, {}, false
  while #chosen.refs < wanted and not is_over and plan.spent.work < V.sort_work and chosen.bytes < V.bytes do
    local messages = read_grouped(queue, plan, step, true, now)
    local refs, names = {}, {}
    load_more_groups(queue, messages.names, states)
    for i, ref in ipairs(messages.refs) do
      local name = messages.names[i]
      local state = states[name]
      local may_go = not state or state.waiting == 0 and state.held == 0 and not stands_still(state) and room_of_group(queue, state) > 0
      if may_go and #chosen.refs < wanted then
        choose(chosen, ref, messages.fields[i], messages.ends[i] or false, name)
        if state then take_room(queue, state) end
      else
        refs[#refs + 1], names[#names + 1] = ref, name
        -- What comes behind it in its group waits with it.
        if state then state.waiting = state.waiting + 1 end
      end
    end
    for _, name in ipairs(names) do
      if name ~= '' then states[name].waiting = states[name].waiting - 1 end
    end
    keep_waiting(queue, plan, states, messages, refs, names, now)
    is_over = messages.exhausted or messages.number == 0 and not messages.cut
    -- Where some have to wait, more is read than is wanted, so that it is not a step a message; else what is read in vain has to be kept.
    step = refs[1] and 100 or wanted - #chosen.refs
  end
  save_groups(queue, states)
  return is_over
end

-- Each to the best free subscription, in their order; batches have theirs.
local function give_chosen(queue, room, chosen, own, now)
  local given, token, at = {}, chosen.before or token_before(queue, now), 1
  local subscriptions, count = chosen.subscriptions or {}, #chosen.refs
  if chosen.before then at = count + 1 end
  local last = token
  while at <= count do
    local subscription, run = best_free(room)
    run = math.min(run, count - at + 1)
    for i = at, at + run - 1 do subscriptions[i] = subscription end
    last, at = last + run, at + run
    give_to_best(room, queue, subscription, run, last)
  end
  chosen.subscriptions, chosen.groups = subscriptions, {}
  for i, name in ipairs(chosen.names) do
    local mark = chosen.begins and chosen.begins[i] and ' b\n' or '\n'
    chosen.groups[i] = name ~= '' and mark .. name or ''
  end
  write_deliveries(queue, chosen, token, own, now, given)
  keep_batches(queue, chosen.batches or {})
  close_room(room, queue)
  return given
end

local function begin_choice(queue, now)
  return (queue.batch or queue.affinity) and empty_batches(token_before(queue, now)) or empty_choice()
end

local function something_may_go(queue)
  return call('ZCARD', K.going(queue.name)) > 1 or queue.affinity and call('EXISTS', K.lines(queue.name)) == 1
end

-- What is unread may have to wait for others of its group: whoever comes for it finds that out.
local function may_go(queue)
  return something_may_go(queue) or something_waits(queue)
end

-- How many messages there are places for, `most` at most. are_placed: only what stands where it may go can be given: for less than `most`, fewer of
-- those that are free are looked at.
local function number_of_places(queue, room, most, are_placed)
  if are_placed and not queue.affinity and room.more and room.total < most then
    local number = call('ZCARD', K.going(queue.name)) - 1 + (queue.freed and #queue.freed.list or 0)
    most = math.min(most, number * (queue.batch or queue.concurrency))
  end
  while room.more and room.total < most do load_next_free(room) end
  return math.min(room.total, most)
end

-- As `dispatch_queue`. What is unread joins before anything is given; it is read as far as somebody needs it, and by a duty.
local function dispatch_in_turns(queue, room, now, limit, own, duty)
  local wanted = room.list[1] and math.min(limit, deliveries_left(queue), V.batch) or 0
  if wanted <= 0 and not duty then return {}, something_waits(queue) end
  local chosen = begin_choice(queue, now)
  if not place_all(queue, now) then return {}, true end
  wanted = number_of_places(queue, room, wanted, true)
  if wanted <= 0 then
    save_freed(queue)
    return {}, end_round(queue)
  end
  local is_over
  if queue.affinity then
    is_over = choose_bound(queue, room, chosen, wanted, now, own) and choose_of_full(queue, room, chosen, wanted, now)
  elseif queue.batch then
    is_over = choose_batches(queue, room, chosen, wanted, now)
  else
    is_over = choose_in_turns(queue, chosen, wanted, now)
  end
  local count = #chosen.refs
  local given = count > 0 and give_chosen(queue, room, chosen, own, now) or {}
  local is_left = end_round(queue)
  if is_over then return given, is_left end
  if count < wanted then return given, true end
  return given, is_left or (count < room.total or room.more) and something_may_go(queue)
end

local function dispatch_to_room(queue, room, now, limit, own, duty)
  if queue.group_rate and (room.list[1] or room.bells or duty) then end_waits_for_rates(queue) end
  if queue.affinity and (room.list[1] or room.bells or duty) then end_bindings(queue) end
  if queue.choice then return dispatch_in_turns(queue, room, now, limit, own, duty) end
  if not room.list[1] then return {}, false end
  local wanted = math.min(limit, deliveries_left(queue), V.batch)
  if wanted <= 0 then return {}, false end
  local chosen = begin_choice(queue, now)
  if not place_ready(queue, now) then return {}, true end
  local is_unread, is_over = may_be_unread(queue), nil
  wanted = number_of_places(queue, room, wanted, not is_unread)
  if wanted <= 0 then return {}, false end
  if queue.affinity then
    is_over = choose_bound(queue, room, chosen, wanted, now, own)
      and (not is_unread or choose_unread_bound(queue, load_plan(queue), room, chosen, wanted, now))
      and choose_of_full(queue, room, chosen, wanted, now)
  elseif queue.batch then
    is_over = choose_batches(queue, room, chosen, wanted, now)
      and (not is_unread or choose_unread_batches(queue, load_plan(queue), room, chosen, wanted, now))
  else
    is_over = choose_going(queue, chosen, wanted, now)
      and (not is_unread or choose_unread(queue, load_plan(queue), chosen, wanted, now))
  end
  local count = #chosen.refs
  local given = count > 0 and give_chosen(queue, room, chosen, own, now) or {}
  if is_over then return given, false end
  if count < wanted then return given, true end
  return given, (count < room.total or room.more) and may_go(queue)
end

-- As `dispatch_queue`. Nobody free is one look.
local function dispatch_grouped(queue, now, limit, own, duty)
  local room = open_room(queue.name, V.none, 1, own)
  local given, more = {}, true
  if queue.listed and not end_listing(queue) then
    place_ready(queue, now)
  else
    local is_free = room.list[1] ~= nil
    given, more = dispatch_to_room(queue, room, now, limit, own, duty)
    save_freed(queue)
    close_listing(queue, is_free and not given[1])
    if queue.has_unlisted and not place_ready(queue, now) then more = true end
    queue.has_unlisted = nil
  end
  save_freed(queue)
  ring_for_rest(queue, room, now, may_go)
  return given, more
end
