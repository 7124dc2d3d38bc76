--- group_placing: messages of a grouped queue that wait get their places in their groups.
--- @include group_reading, group_state

-- Messages that wait from now on, each in its group. states: of these groups; the caller saves them. A group has the weight of the
-- first one that waits in it. are_last: see `enter_groups`.
local function place_messages(queue, plan, states, refs, names, now, fields, are_last)
  local places, weighed = {}, {}
  for i, ref in ipairs(refs) do
    local state = states[names[i]]
    places[2 * i - 1], places[2 * i] = 0, ref
    if plan.trees.weight and queue.choice and state and state.waiting == 0 and not weighed[state] then
      weighed[state], state.weight = true, group_weight(plan, ref, fields[i], now)
    end
  end
  call_in_batches('ZADD', K.sorted(queue.name, V.none), places)
  enter_groups(queue, states, refs, names, are_last)
end

-- One step of at most 200 messages, so that groups of which much waits are written once for several. Gives what was read.
local function place_next(queue, plan, from_log, now)
  local messages = read_grouped(queue, plan, 200, from_log, now)
  local states = load_groups(queue, messages.names)
  place_messages(queue, plan, states, messages.refs, messages.names, now, messages.fields, messages.are_last)
  save_groups(queue, states)
  plan.spent.work = plan.spent.work + 1
  return messages
end

-- Whether all that had come back has its place.
local function place_ready(queue, plan, now)
  while call('EXISTS', K.ready(queue.name)) == 1 do
    if plan.spent.work >= V.sort_work then return false end
    place_next(queue, plan, false, now)
  end
  return true
end

-- Whether all that waits has its place.
local function place_all(queue, plan, now)
  local from_log = something_waits(queue)
  while from_log do
    if plan.spent.work >= V.sort_work then return false end
    local messages = place_next(queue, plan, true, now)
    plan.spent.work = plan.spent.work + 0.5 * messages.number
    from_log = not messages.exhausted and (messages.number > 0 or messages.cut)
  end
  return true
end

local function empty_choice()
  return {refs = {}, fields = {}, ends = {}, names = {}, bytes = 0}
end

local function choose(chosen, ref, fields, ends, name)
  local number = #chosen.refs + 1
  chosen.refs[number], chosen.fields[number], chosen.ends[number] = ref, with_group(fields, name ~= '' and name), ends
  chosen.names[number] = name
  chosen.bytes = chosen.bytes + size_of_fields(fields)
end
