--- group_turn_choice: the messages that go next where groups take turns: the first one of the group that is first in line, again and again.
--- @include group_placing, group_leaving, freed_groups, group_turns, group_state, index_places, choice

-- The line of what may go, at most so many; whether that is all of it.
local function first_in_line(queue, count)
  local found, line = call('ZRANGE', K.going(queue.name), 0, count - 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    local item = item_of_member(found[i])
    if item then item.score, line[#line + 1] = tonumber(found[i + 1]), item end
  end
  return line, #line < count
end

-- From the end, where one that had its turn mostly belongs. Equal places are in the order of arrival.
local function stand_in_line(line, from, item)
  local i = #line
  while i >= from and (line[i].score > item.score or line[i].score == item.score and line[i].ref > item.ref) do
    line[i + 1] = line[i]
    i = i - 1
  end
  line[i + 1] = item
end

-- What follows an item in its group and may go as well.
local function following_item(queue, state, count, read)
  if state.leased >= queue.concurrency or queue.group_rate and tokens_of_group(queue, state) <= 0 then return nil end
  if not state.following or not state.following[state.followed] then
    local number = math.min(count, room_of_group(queue, state))
    state.following, state.followed = items_in_group(queue, state, state.passed, number, is_held(queue, state)), 1
    read_items(queue, state.following, read)
    note_placed(queue, state.following)
  end
  local following = state.following[state.followed]
  if not following then return nil end
  state.followed = state.followed + 1
  following.score = score_of(queue, state)
  return following
end

-- Its fields and when its life ends; nil of what is not given, which is noted as what it is.
local function fit_entry(queue, found, item, now)
  local entry = item.is_placed and (found.read[item.ref] or fields_of_ref(item.ref))
  local fate, ends = nil, nil
  if entry and (#entry > 2 or queue.life > 0) then fate, ends = fate_of(queue, item.ref, entry, true, now) end
  if entry and not fate then return entry, ends or false end
  local list = fate and found.over or item.is_placed and found.missing or found.left
  list[#list + 1] = item.ref
  return nil
end

-- items: what leaves the lists, and the states of its groups; going: members of those that stand in the line; read: ref -> fields of what was
-- read already.
local function empty_findings(states)
  return {items = {}, going = {}, read = {}, states = states, changed = {}, missing = {}, over = {}, left = {}}
end

-- Of those that leave the queue's lists one that stands in the line.
local function leave_with(found, item)
  found.items[#found.items + 1], item.is_freed = item, nil
  if item.stands then found.going[#found.going + 1] = item.stands end
end

-- Takes from the line until it is over, or what comes next is not in it. line: see first_in_line; is_whole: nothing stands behind it.
-- found: see `empty_findings`.
local function take_from_line(queue, line, is_whole, chosen, wanted, found, now)
  local at, bound, round = 1, is_whole and math.huge or line[#line].score, load_round(queue)
  local share = math.ceil((wanted - #chosen.refs) / #line)
  while line[at] and #chosen.refs < wanted and #found.items < V.batch and chosen.bytes < V.bytes do
    local item = line[at]
    local state = found.states[item.name]
    at = at + 1
    if state then found.changed[item.name] = state end
    -- By another definition a group may have no room; saving it takes it out of the line.
    if not state or not stands_still(state) and room_of_group(queue, state) > 0 then
      local entry, ends = fit_entry(queue, found, item, now)
      leave_with(found, item)
      if entry then
        choose(chosen, item.ref, entry, ends, item.name)
        local turn = take_turn(round, turn_of_place(item.score))
        if state then
          take_room(queue, state)
          state.turn = turn
        end
      end
      if state then
        state.passed = (state.passed or 0) + 1
        local following = following_item(queue, state, share, found.read)
        if following and following.score <= bound then stand_in_line(line, at, following) end
      end
    end
  end
  save_round(queue, round)
end

-- What left the line leaves its groups, whose next ones stand in it from now on.
local function leave_line(queue, found)
  for _, item in ipairs(found.items) do
    local state = found.states[item.name]
    if state then
      state.going, state.passed, state.following = 0, nil, nil
      if not item.is_listed then state.waiting = state.waiting - 1 end
    end
  end
  call_in_batches('ZREM', K.going(queue.name), found.going)
  leave_lists(queue, found.states, found.items)
  save_groups(queue, found.changed)
  leave_places(queue, found.items)
  settle_missing(queue, found.missing)
  expire_read(queue, found.over)
end

-- By another definition a group may have none or several in line, or no turn, and what stands there may be of a list that is void: it is put in its
-- place. Whether there was one.
local function mend_line(queue, line, states)
  local wrong, going, is_mended = {}, {}, false
  for _, item in ipairs(line) do
    local state = states[item.name]
    if state and (state.going ~= 1 or state.before or queue.choice and not state.turn) then
      going[#going + 1] = item.stands
      wrong[item.name], is_mended = state, true
    end
  end
  for name, state in pairs(wrong) do
    for _, place in ipairs(state.before or places_in_group(queue, state, 0, state.going)) do going[#going + 1] = place .. name end
    state.going, state.before = 0, nil
  end
  call_in_batches('ZREM', K.going(queue.name), going)
  save_groups(queue, wrong, true)
  return is_mended
end

-- Groups that were freed in this call stand in the line where they belong, as far as all of it is known up to there. Gives their items.
local function join_freed(queue, line, is_whole, states)
  local last, joined, left = is_whole and math.huge or line[#line].score, {}, {}
  for _, item in ipairs(take_freed(queue)) do
    if item.score <= last then
      stand_in_line(line, 1, item)
      joined[#joined + 1], states[item.name] = item, item.state
    else
      left[#left + 1] = item
    end
  end
  if left[1] then save_standing(queue, left) end
  return joined
end

-- Of what joined the line the groups that were not given stand in it, as they would have before.
local function keep_joined(queue, joined, found)
  local left = {}
  for _, item in ipairs(joined) do
    if item.is_freed then left[#left + 1] = item end
  end
  if left[1] then stand_freed(queue, left, found.changed) end
end

-- Takes what may go, each time of the group that is first in line. Whether there is no more of it.
local function choose_in_turns(queue, chosen, wanted, now)
  local looked = 0
  while #chosen.refs < wanted do
    if chosen.bytes >= V.bytes or looked >= V.batch then return false end
    local line, is_whole = first_in_line(queue, wanted - #chosen.refs)
    if not line[1] and not queue.freed then return true end
    local names = {}
    for i, item in ipairs(line) do names[i] = item.name end
    local states = load_groups(queue, names)
    local is_mended = mend_line(queue, line, states)
    local found = empty_findings(states)
    if not is_mended then
      local joined = join_freed(queue, line, is_whole, states)
      if not line[1] then return true end
      note_placed(queue, line)
      read_items(queue, line, found.read)
      take_from_line(queue, line, is_whole, chosen, wanted, found, now)
      keep_joined(queue, joined, found)
      leave_line(queue, found)
    end
    looked = looked + math.max(#found.items, 1)
  end
  return false
end
