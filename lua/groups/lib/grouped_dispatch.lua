--- grouped_dispatch: dispatch for a queue with groups: the oldest message whose group has room, or the first one of the group whose turn it is, to the best free subscription.
--- @include group_placing, freed_groups, group_turn_choice, group_batch_choice, bound_choice, group_state, free_subscriptions, chosen_handover, index_places, choice, bells
-- What has come back has its place in its group before anything is given. The logs are read as far as somebody needs; what
-- is read there and has to wait is older than what is unread, so what may go of it comes first.

-- Of what was freed in this call, where the oldest goes first, what is among them joins the first ones, the rest stands among what may go.
local function join_oldest(queue, refs, names, count)
  local joined, left = {}, {}
  for _, item in ipairs(take_freed(queue)) do
    local i = #refs
    while i > 0 and refs[i] > item.ref do
      refs[i + 1], names[i + 1] = refs[i], names[i]
      i = i - 1
    end
    refs[i + 1], names[i + 1], joined[item.ref] = item.ref, item.name, item
  end
  for i = #refs, count + 1, -1 do
    left[#left + 1], joined[refs[i]], refs[i], names[i] = joined[refs[i]], nil, nil, nil
  end
  if left[1] then save_standing(queue, left) end
  return joined
end

-- The oldest that may go: refs and their groups; whether these are all; items of those that stand nowhere yet, by their refs.
local function first_going(queue, count)
  local refs, names = call('ZRANGE', K.going(queue.name), 0, count - 1), {}
  if refs[#refs] == V.anchor then refs[#refs] = nil end
  for i, member in ipairs(refs) do refs[i], names[i] = string.match(member, '^(%S+) (.*)$') end
  local are_all = #refs < count
  return refs, names, are_all, queue.freed and join_oldest(queue, refs, names, count) or {}
end

-- Of what joined those that are not given stand among what may go, as they would have before.
local function keep_oldest(queue, joined, states)
  local left = {}
  for _, item in pairs(joined) do left[#left + 1] = item end
  if left[1] then stand_freed(queue, left, states) end
end

-- Of what may go that which may not: it left the queue, is missing from its log, its life is over, or by another definition its
-- group has no room. It makes room for others, which may be older than the rest. entries: the fields of the others.
local function drop_unfit(queue, states, refs, names, joined, now)
  local placed = call('ZMSCORE', K.sorted(queue.name, V.none), unpack(refs))
  local found = {entries = {}, ends = {}, refs = {}, names = {}, missing = {}, over = {}, is_crowded = false}
  local taken, read = {}, read_neighbours(queue, refs, {})
  for i, ref in ipairs(refs) do
    local name, state = names[i], states[names[i]]
    local entry, fate, ends = placed[i] and (read[ref] or fields_of_ref(ref)), nil, nil
    if entry and (#entry > 2 or queue.life > 0) then fate, ends = fate_of(queue, ref, entry, true, now) end
    found.entries[i], found.ends[i] = entry, ends or false
    if not entry or fate then
      found.refs[#found.refs + 1], found.names[#found.names + 1] = ref, name
      local list = fate and found.over or placed[i] and found.missing or nil
      if list then list[#list + 1] = ref end
    elseif state then
      taken[name] = (taken[name] or 0) + 1
      found.is_crowded = found.is_crowded or stands_still(state) or taken[name] > room_of_group(queue, state)
    end
  end
  if not found.refs[1] and not found.is_crowded then return found.entries, found.ends end
  leave_groups(queue, states, found.refs, found.names, joined)
  keep_oldest(queue, joined, states)
  save_groups(queue, states)
  if found.refs[1] then leave_places(queue, found.refs) end
  settle_missing(queue, found.missing)
  expire_read(queue, found.over)
  return nil
end

-- Takes what may go. Whether there is no more of it.
local function choose_going(queue, chosen, wanted, now)
  local looked = 0
  while #chosen.refs < wanted do
    if chosen.bytes >= V.bytes or looked >= V.batch then return false end
    local count = wanted - #chosen.refs
    local refs, names, are_all, joined = first_going(queue, count)
    if not refs[1] then return true end
    looked = looked + #refs
    local states = load_groups(queue, names)
    local entries, ends = drop_unfit(queue, states, refs, names, joined, now)
    local taken = {}
    for i = 1, entries and #refs or 0 do
      if chosen.bytes >= V.bytes then
        refs, names = taken, {unpack(names, 1, #taken)}
        break
      end
      taken[i] = refs[i]
      choose(chosen, refs[i], entries[i], ends[i], names[i])
      local state = states[names[i]]
      if state then take_room(queue, state) end
    end
    if entries then
      leave_groups(queue, states, refs, names, joined)
      keep_oldest(queue, joined, states)
      local may_more_go = save_groups(queue, states)
      leave_places(queue, refs)
      if are_all and not may_more_go and refs ~= taken then return true end
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
    place_messages(queue, plan, states, refs, names, now, nil, messages.are_last)
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
  local given, more = dispatch_to_room(queue, room, now, limit, own, duty)
  save_freed(queue)
  ring_for_rest(queue, room, now, may_go)
  return given, more
end
