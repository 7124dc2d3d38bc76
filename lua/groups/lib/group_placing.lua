--- group_placing: messages of a grouped queue that wait get their places in their groups.
--- @include group_reading, group_state, listing, choice

local function give_places(queue, states, refs, names, turns)
  if not refs[1] then return end
  local places = {}
  for i, ref in ipairs(refs) do places[2 * i - 1], places[2 * i] = '0', ref end
  call_in_batches('ZADD', K.sorted(queue.name, V.none), places)
  enter_groups(queue, states, refs, names, turns)
end

-- Messages that were read wait from now on, each in its group. messages: all that was read, as `read_grouped` gives them; refs, names, fields: of
-- those that wait; states: of their groups, which the caller saves. A group has the weight of the first message that waits in it. What was read
-- straight from its log is listed; all else gets its place, and so does what is in no group.
local function keep_waiting(queue, plan, states, messages, refs, names, now, fields)
  local reading, weighed = messages.reading, {}
  for i, ref in ipairs(plan.trees.weight and queue.choice and refs or {}) do
    local state = states[names[i]]
    if state and state.waiting == 0 and not weighed[state] then
      weighed[state], state.weight = true, group_weight(plan, ref, fields[i], now)
    end
  end
  if not reading then return give_places(queue, states, refs, names) end
  local turns = queue.choice and refs[1] and begin_turns(queue, states, refs, names)
  local grouped, its, groupless, none = refs, names, {}, {}
  for i, ref in ipairs(refs) do
    if names[i] == '' then
      if grouped == refs then grouped, its = {unpack(refs, 1, i - 1)}, {unpack(names, 1, i - 1)} end
      groupless[#groupless + 1], none[#none + 1] = ref, ''
    elseif grouped ~= refs then
      grouped[#grouped + 1], its[#its + 1] = ref, names[i]
    end
  end
  give_places(queue, states, groupless, none, turns)
  note_reading(queue, reading, list_messages(queue, states, grouped, its, #grouped == #reading.refs))
end

-- One step of at most 200 messages; states: of groups, which the caller saves. Gives what was read. from_log: as of `read_grouped`.
local function place_next(queue, plan, from_log, now, states)
  local messages = read_grouped(queue, plan, 200, from_log, now)
  for name, state in pairs(load_groups(queue, messages.names)) do states[name] = state end
  keep_waiting(queue, plan, states, messages, messages.refs, messages.names, now, messages.fields)
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

-- Whether all that waits has its place, or is listed.
local function place_all(queue, now)
  if queue.topic ~= '' and not place_ready(queue, now) then return false end
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

-- Items that leave have their places no more; nothing of a queue with groups has one by a priority or a filter.
local function leave_places(queue, items)
  local refs = {}
  for _, item in ipairs(items) do
    if not item.is_listed then refs[#refs + 1] = item.ref end
  end
  if not refs[1] then return end
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

-- Whether they still have a place, or are unread where they are listed: item by item.
local function note_placed(queue, items)
  local refs, sorted, listed = {}, {}, {}
  for _, item in ipairs(items) do
    if item.is_listed then listed[#listed + 1] = item else refs[#refs + 1], sorted[#sorted + 1] = item.ref, item end
  end
  if listed[1] then note_listed(queue, listed) end
  if not refs[1] then return end
  for i, score in ipairs(call('ZMSCORE', K.sorted(queue.name, V.none), unpack(refs))) do sorted[i].is_placed = score end
end

-- As `read_neighbours`, of items.
local function read_items(queue, items, read)
  local refs = {}
  for i, item in ipairs(items) do refs[i] = item.ref end
  return read_neighbours(queue, refs, read)
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
