--- group_placing: messages of a grouped queue that wait get their places in their groups.
--- @include group_reading, group_state, choice

-- Messages that wait from now on, each in its group. states: of these groups; the caller saves them. A group has the weight of the
-- first one that waits in it. are_last: see `enter_groups`.
local function place_messages(queue, plan, states, refs, names, now, fields, are_last)
  local places, weighed = {}, {}
  for i, ref in ipairs(refs) do
    local state = states[names[i]]
    places[2 * i - 1], places[2 * i] = '0', ref
    if plan.trees.weight and queue.choice and state and state.waiting == 0 and not weighed[state] then
      weighed[state], state.weight = true, group_weight(plan, ref, fields[i], now)
    end
  end
  call_in_batches('ZADD', K.sorted(queue.name, V.none), places)
  enter_groups(queue, states, refs, names, are_last)
end

-- One step of at most 200 messages; states: of groups, which the caller saves. Gives what was read.
local function place_next(queue, plan, from_log, now, states)
  local messages = read_grouped(queue, plan, 200, from_log, now)
  load_more_groups(queue, messages.names, states)
  place_messages(queue, plan, states, messages.refs, messages.names, now, messages.fields, messages.are_last)
  plan.spent.work = plan.spent.work + 1
  return messages
end

-- Whether all that had come back has its place.
local function place_ready(queue, now)
  local states, is_done = {}, false
  repeat
    is_done = call('EXISTS', K.ready(queue.name)) == 0
    local is_over = not is_done and load_plan(queue).spent.work >= V.sort_work
    if not is_done and not is_over then place_next(queue, load_plan(queue), false, now, states) end
  until is_done or is_over
  save_groups(queue, states)
  return is_done
end

-- Whether the queue may have something to read in its logs.
local function may_be_unread(queue)
  return queue.topic == '' or #open_front(queue, queue.topic, 1).entries > 0
end

-- Whether all that waits has its place.
local function place_all(queue, now)
  local states, from_log, is_over = {}, something_waits(queue), false
  while from_log and not is_over do
    local plan = load_plan(queue)
    is_over = plan.spent.work >= V.sort_work
    if not is_over then
      local messages = place_next(queue, plan, true, now, states)
      plan.spent.work = plan.spent.work + 0.5 * messages.number
      from_log = not messages.exhausted and (messages.number > 0 or messages.cut)
    end
  end
  save_groups(queue, states)
  return not from_log
end

-- Messages that leave have their places no more; nothing of a queue with groups has one by a priority or a filter.
local function leave_places(queue, refs)
  call_in_batches('ZREM', K.sorted(queue.name, V.none), refs)
  if queue.life > 0 then call_in_batches('ZREM', K.lives(queue.name), refs) end
end

-- Reads messages at once where they follow each other in the log: ref -> fields. Where the first ones do not, no more are looked for. The first
-- stretch is short, since the bodies may be large.
local function read_neighbours(queue, refs, read)
  local at, stretch, trials, bytes = 1, 4, 3, 0
  while refs[at + 1] and trials > 0 and bytes < V.bytes / 4 do
    local size, count = read_stretch(queue, refs, at, stretch, read)
    if count > 0 then
      at, bytes, trials = at + count, bytes + size, 3
      stretch = math.max(2, math.floor(V.bytes * count / (4 * math.max(size, 1))))
    else
      at, trials = at + 1, trials - 1
    end
  end
  return read
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
