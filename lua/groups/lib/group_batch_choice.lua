--- group_batch_choice: the messages that go next where groups go in batches: of the group that is first as many as a batch has, one behind the other, for one subscription.
--- @include group_placing, group_turn_choice, group_turns, group_state, free_subscriptions

-- Chosen messages have their subscriptions already, and their tokens follow `before`.
local function empty_batches(before)
  local chosen = empty_choice()
  chosen.subscriptions, chosen.before, chosen.batches, chosen.begins = {}, before, {}, {}
  return chosen
end

-- entries: of consecutive messages of a group, each {ref, fields, ends}; name: '' of one that is in none; begins: see `with_group`.
local function choose_batch(queue, room, chosen, subscription, name, entries, begins)
  local number, count = #chosen.refs, #entries
  if count == 0 then return end
  local first = string.format('%d', chosen.before + number + 1)
  local refs = {}
  for i, entry in ipairs(entries) do
    chosen.refs[number + i], chosen.ends[number + i], chosen.names[number + i] = entry[1], entry[3] or false, name
    chosen.fields[number + i] = with_group(entry[2], name ~= '' and name, count > 1 and first, begins and i == 1)
    chosen.subscriptions[number + i], refs[i] = subscription, entry[1]
    chosen.bytes = chosen.bytes + size_of_fields(entry[2])
  end
  if begins then chosen.begins[number + 1] = true end
  if count > 1 then
    local last = string.format('%d', chosen.before + number + count)
    chosen.batches[#chosen.batches + 1], chosen.batches[#chosen.batches + 2] = name, first .. ' ' .. last .. ' ' .. table.concat(refs, ' ')
  end
  give_to_best(room, queue, subscription, count, chosen.before + number + count)
end

-- How many messages of a group go to a subscription at once.
local function size_of_batch(queue, chosen, subscription, state, wanted)
  local most = math.min(wanted - #chosen.refs, subscription.max - subscription.leased)
  return math.min(most, state and room_of_group(queue, state) or 1)
end

-- The first of a group, and what follows it there, as many as go at once.
local function items_of_batch(queue, item, state, most, read)
  local items = {item}
  if most <= 1 then return items end
  local following = items_in_group(queue, state, 1, most - 1, is_held(queue, state))
  read_items(queue, following, read)
  note_placed(queue, following)
  for i, each in ipairs(following) do items[i + 1] = each end
  return items
end

-- found: see `empty_findings`.
local function take_batches(queue, room, line, chosen, wanted, found, now)
  local round = queue.choice and load_round(queue)
  for _, item in ipairs(line) do
    local subscription = best_free(room)
    if not subscription or #chosen.refs >= wanted or #found.items >= V.batch or chosen.bytes >= V.bytes then break end
    local state, entries = found.states[item.name], {}
    if state then found.changed[item.name] = state end
    -- By another definition a group may have no room; saving it takes it out of the line.
    local most = (not state or not stands_still(state)) and size_of_batch(queue, chosen, subscription, state, wanted) or 0
    local bytes = chosen.bytes
    for i, each in ipairs(most > 0 and items_of_batch(queue, item, state, most, found.read) or {}) do
      if bytes >= V.bytes or i > 1 and not entries[1] and not queue.choice then break end
      local entry, ends = fit_entry(queue, found, each, now)
      leave_with(found, each)
      if entry then
        entries[#entries + 1], bytes = {each.ref, entry, ends}, bytes + size_of_fields(entry)
        if state then take_room(queue, state) end
      end
    end
    if round and entries[1] then
      local turn = take_turn(round, turn_of_place(item.score))
      if state then state.turn = turn end
    end
    choose_batch(queue, room, chosen, subscription, item.name, entries)
    -- What the group has instead of what was not given may be before others that stand in the line.
    if most > 0 and not entries[1] then break end
  end
  if round then save_round(queue, round) end
end

-- Takes what may go, the oldest first or by turns. Whether there is no more of it.
local function choose_batches(queue, room, chosen, wanted, now)
  local looked, count = 0, 0
  while #chosen.refs < wanted do
    if chosen.bytes >= V.bytes or looked >= V.batch then return false end
    -- Mostly as many groups as it takes; more where they have little.
    count = math.min(math.max(2 * count, math.ceil((wanted - #chosen.refs) / queue.batch)), wanted - #chosen.refs)
    local line = first_in_line(queue, count)
    if not line[1] then return true end
    local names = {}
    for i, item in ipairs(line) do names[i] = item.name end
    local states = load_groups(queue, names)
    local is_mended = mend_line(queue, line, states)
    local found = empty_findings(states)
    if not is_mended then
      note_placed(queue, line)
      take_batches(queue, room, line, chosen, wanted, found, now)
      leave_line(queue, found)
    end
    looked = looked + math.max(#found.items, 1)
  end
  return false
end

-- Of messages that were read at once those of each group, in the order of their first ones: places in the lists.
local function places_by_group(names)
  local bundles, of = {}, {}
  for i, name in ipairs(names) do
    local bundle = name ~= '' and of[name]
    if not bundle then
      bundle = {name = name}
      bundles[#bundles + 1], of[name] = bundle, bundle
    end
    bundle[#bundle + 1] = i
  end
  return bundles
end

-- Reads the logs until enough is found, or the work is done. What has to wait has its place then. Whether the end of all logs was seen.
local function choose_unread_batches(queue, plan, room, chosen, wanted, now)
  local step = wanted - #chosen.refs
  while #chosen.refs < wanted do
    if plan.spent.work >= V.sort_work or chosen.bytes >= V.bytes then return false end
    local messages = read_grouped(queue, plan, step, true, now)
    local states, refs, names = load_groups(queue, messages.names), {}, {}
    for _, bundle in ipairs(places_by_group(messages.names)) do
      local state, subscription, most, entries = states[bundle.name], best_free(room), 0, {}
      local may_go = not state or state.waiting == 0 and state.held == 0 and not stands_still(state)
      if may_go and subscription then most = size_of_batch(queue, chosen, subscription, state, wanted) end
      for i, place in ipairs(bundle) do
        local ref = messages.refs[place]
        if i <= most then
          entries[i] = {ref, messages.fields[place], messages.ends[place]}
          if state then take_room(queue, state) end
        else
          refs[#refs + 1], names[#names + 1] = ref, bundle.name
        end
      end
      choose_batch(queue, room, chosen, subscription, bundle.name, entries)
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
