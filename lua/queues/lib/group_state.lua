--- group_state: the groups of a queue: how many of each are leased, what of it waits with a place, and which of that may go.
-- Included as `group_state()`. A group's messages that may go are the first ones of those that wait in it, as many as its
-- concurrency leaves; while some that failed hold it, only those. What left the queue otherwise is passed over when its turn comes.
-- Where groups take turns, only the first one of each stands among what may go, at the place of its group.
-- A message that may go is named by its place: its ref, then a tab if it stands in the list of its group (group_lists.lua), or a space if it is
-- among `sorted`. A message that was in both has two places, which differ by that. Its member of `going` is its place, then the name of its group.
--- @include batch, group_turns, rates, group_bindings, group_lists

-- Behind a line feed stands of a paused group since when, ms, and who paused it, behind another one to which subscription it is bound,
-- and until when, and behind the last one what of it is listed. waiting: all that waits, listed or with a place.
local function state_of(name, value)
  if not value then
    return {name = name, leased = 0, going = 0, waiting = 0, held = 0, stopped = 0, turn = nil, weight = 1, score = nil, listed = 0, listing = nil,
      pieces = '0', front = '', first = nil}
  end
  local leased, going, waiting, held, stopped, turn, weight, at =
    string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*)()')
  local numbers = known_numbers
  -- Places of a table that is made at once are given before they are needed: to make it larger is work.
  local state = {name = name, leased = numbers[leased] or tonumber(leased), going = numbers[going] or tonumber(going),
    waiting = numbers[waiting] or tonumber(waiting), held = numbers[held] or tonumber(held), stopped = numbers[stopped] or tonumber(stopped),
    turn = tonumber(turn), weight = numbers[weight] or tonumber(weight) or 1, score = nil, listed = 0, listing = nil, pieces = '0', front = '', first = nil}
  if at > #value then return state end
  local list = at
  if string.byte(value, at + 1) ~= 108 then
    list = string.find(value, '\nl', at, true)
    local rest = string.sub(value, at, list and list - 1 or -1)
    local paused, by = string.match(rest, '\np(%d+) ([^\n]*)')
    state.paused, state.paused_by = tonumber(paused), by
    read_binding(state, rest)
  end
  if list then read_list(state, value, list + 2) end
  return state
end

-- Somebody has to let it go on.
local function stands_still(state)
  return state.stopped > 0 or state.paused ~= nil
end

local function score_of(queue, state)
  if not queue.choice then return 0 end
  return state.turn and place_in_line(queue, state.leased, state.weight, state.turn)
end

-- A bucket that was wrong is written anew with the state.
local function read_bucket(queue, state, stored)
  state.full = bounded_end(queue.group_rate, stored, rate_clock())
  state.is_paid = state.full ~= stored
end

-- How many messages of a group its rate lets go now.
local function tokens_of_group(queue, state)
  if not queue.group_rate then return math.huge end
  return number_of_tokens(queue.group_rate, state.full, rate_clock())
end

-- How many more of a group its concurrency lets be leased: the next batch, where there are some, once all of the last one is settled.
local function places_of_group(queue, state)
  if queue.batch then return state.leased == 0 and queue.batch or 0 end
  return queue.concurrency - state.leased
end

-- How many more of a group may be leased.
local function room_of_group(queue, state)
  if not queue.group_rate then return places_of_group(queue, state) end
  return math.min(places_of_group(queue, state), tokens_of_group(queue, state))
end

-- Where groups take turns, go in batches or are bound, only the first one of each stands among what may go.
local function stands_for_its_group(queue)
  return queue.choice or queue.batch or queue.affinity
end

-- One more message of a group is leased.
local function take_room(queue, state)
  state.leased = state.leased + 1
  if not queue.group_rate then return end
  local now = rate_clock()
  state.full, state.is_paid = math.max(state.full or now, now) + queue.group_rate.interval, true
end

-- Of groups that somebody knows already, too: what was given back has its tokens again.
local function read_buckets(queue, states)
  local names = {}
  for name, state in pairs(states) do
    if not state.is_paid then names[#names + 1] = name end
  end
  for first = 1, #names, 1000 do
    local ends = call('ZMSCORE', K.rates(queue.name), unpack(names, first, math.min(first + 999, #names)))
    for i = 1, #ends do read_bucket(queue, states[names[first + i - 1]], tonumber(ends[i])) end
  end
end

-- Places of those that have one among `sorted`, in their order, behind so many of them; with `failed` of those alone that failed and hold the
-- group, which come first.
local function sorted_places(queue, name, from, count, failed)
  local last = '(' .. name .. (failed and '\0001' or '\001')
  local places = call('ZRANGE', K.grouped(queue.name), '[' .. name .. '\000', last, 'BYLEX', 'LIMIT', digits_of(from), digits_of(count))
  local begin, sub = #name + 3, string.sub
  for i = 1, #places do places[i] = sub(places[i], begin) .. ' ' end
  return places
end

-- The same of what is listed.
local function listed_places(queue, state, from, count)
  local places = listed_refs(queue, state, from, count)
  for i = 1, #places do places[i] = places[i] .. '\t' end
  return places
end

-- Places of what waits in a group, in its order, behind so many of them: those that failed and hold it, then all others by their refs. failed: as
-- of `sorted_places`.
local function places_in_group(queue, state, from, count, failed)
  if count <= 0 then return {} end
  if state.listed == 0 or failed then return sorted_places(queue, state.name, from, count, failed) end
  if state.listed == state.waiting and from == 0 and count == 1 then return {first_listed(queue, state) .. '\t'} end
  if state.listed == state.waiting then return listed_places(queue, state, from, count) end
  local places, number = sorted_places(queue, state.name, 0, from + count, true), 0
  local sorted, listed = sorted_places(queue, state.name, #places, from + count, false), listed_places(queue, state, 0, from + count)
  local i, k, found, sub = 1, 1, {}, string.sub
  while #places < from + count and (sorted[i] or listed[k]) do
    -- Of one message that is both, what is listed comes first.
    if not listed[k] or sorted[i] and sub(sorted[i], 1, -2) < sub(listed[k], 1, -2) then
      places[#places + 1], i = sorted[i], i + 1
    else
      places[#places + 1], k = listed[k], k + 1
    end
  end
  for at = from + 1, #places do
    number = number + 1
    found[number] = places[at]
  end
  return found
end

-- What a state has listed was read by its queue.
local function void_list(queue, state)
  if state.going > 0 and not state.before then state.before = places_in_group(queue, state, 0, state.going) end
  close_list(state)
end

-- names: of messages, '' of those that are in no group. Gives the state of each group by its name. Each is read once a call, so that all who
-- change it have the same one; they save it.
local function load_groups(queue, names)
  local states, unread, known, listing = {}, {}, queue.group_states or {}, nil
  queue.group_states = known
  for _, name in ipairs(names) do
    if name ~= '' and not states[name] then
      local state = known[name]
      if state == nil then unread[#unread + 1] = name end
      if state == false then
        state = state_of(name, nil)
        known[name] = state
      end
      states[name] = state or true
    end
  end
  if unread[1] then listing = string.match(queue.listed or '', '^%d+') end
  for first = 1, #unread, 1000 do
    local last = math.min(first + 999, #unread)
    for i, value in ipairs(call('HMGET', K.groups(queue.name), unpack(unread, first, last))) do
      local name = unread[first + i - 1]
      local state = state_of(name, value)
      if state.going > 0 then state.score = score_of(queue, state) end
      if state.listed > 0 and state.listing ~= listing then void_list(queue, state) end
      states[name], known[name] = state, state
    end
  end
  if queue.group_rate then read_buckets(queue, states) end
  return states
end

-- The same, into the states of a step before, so that each is saved once.
local function load_more_groups(queue, names, states)
  local unknown = {}
  for _, name in ipairs(names) do
    if not states[name] then unknown[#unknown + 1] = name end
  end
  if not unknown[1] then return end
  for name, state in pairs(load_groups(queue, unknown)) do states[name] = state end
end

-- A message that waits in a group. stands: its member of `going`, nil where it stands nowhere. Who gives it sets the other fields.
local function new_item(ref, name, is_listed, stands)
  return {ref = ref, name = name, is_listed = is_listed, stands = stands, score = nil, is_placed = nil, was_listed = nil}
end

-- What stands in a member of `going`; nil of the anchor.
local function item_of_member(member)
  local ref, mark, name = string.match(member, '^(%S+)(%s)(.*)$')
  return ref and new_item(ref, name, mark == '\t', member)
end

local function place_of_item(item)
  return item.ref .. (item.is_listed and '\t' or ' ')
end

-- Of what waits in a group, in its order, what stands behind so many of them; see `places_in_group`.
local function items_in_group(queue, state, from, count, failed)
  local items, name = {}, state.name
  if count == 1 and from == 0 and state.listed > 0 and state.listed == state.waiting and not failed then
    items[1] = new_item(first_listed(queue, state), name, true)
  elseif state.listed == state.waiting and not failed then
    for i, ref in ipairs(listed_refs(queue, state, from, count)) do items[i] = new_item(ref, name, true) end
  else
    for i, place in ipairs(places_in_group(queue, state, from, count, failed)) do
      items[i] = new_item(string.sub(place, 1, -2), name, string.byte(place, -1) == 9)
    end
  end
  return items
end

-- Whether only those may go that failed.
local function is_held(queue, state)
  return state.held > 0 and queue.on_failure ~= V.pass
end

-- How many of those that wait may go.
local function number_allowed(queue, state)
  local waiting = state.waiting
  if waiting == 0 then return 0 end
  if not queue.group_rate and not queue.batch and state.held + state.stopped == 0 and not state.paused then
    local places = queue.concurrency - state.leased
    if places <= 0 then return 0 end
    if queue.choice or queue.affinity then return 1 end
    return places < waiting and places or waiting
  end
  local places = room_of_group(queue, state)
  if stands_for_its_group(queue) then places = math.min(places, 1) end
  if stands_still(state) or places <= 0 then return 0 end
  if not is_held(queue, state) then return math.min(places, state.waiting) end
  return #places_in_group(queue, state, 0, places, true)
end

-- Before something enters a group: what may go now may have to wait then.
local function remember_going(queue, state)
  if not state.before and state.going > 0 then state.before = places_in_group(queue, state, 0, state.going) end
end

local function is_over(state)
  return state.leased + state.waiting + state.held + state.stopped == 0 and not state.paused and not state.bound_to
end

-- Groups that were changed in the definition, or repaired, and never had a turn.
local function give_missing_turns(queue, states)
  local without = {}
  for _, state in pairs(states) do
    if not state.turn and not is_over(state) then without[#without + 1] = state end
  end
  assign_turns(queue, without)
end

-- When its rate lets another message of a group go than the `allowed` ones, which wait for nothing else; nil: it does not wait for that.
local function time_of_rate(queue, state, allowed)
  local rate, tokens = queue.group_rate, tokens_of_group(queue, state)
  local places = places_of_group(queue, state)
  if stands_for_its_group(queue) then places = math.min(places, 1) end
  if tokens ~= allowed or tokens >= math.min(places, rate.burst) or stands_still(state) or state.waiting <= allowed then return nil end
  return time_of_tokens(rate, state.full, tokens + 1)
end

-- items: times and groups, in turn.
local function wait_for_rates(queue, buckets, items)
  call_in_batches('ZADD', K.rates(queue.name), buckets)
  if buckets[1] then wake_for_full_buckets(queue, buckets[1]) end
  call_in_batches('ZADD', K.later(queue.name), items)
  local first = math.huge
  for i = 1, #items, 2 do first = math.min(first, tonumber(items[i])) end
  if items[1] then wake_for_tokens(queue, queue.group_rate, first, rate_clock()) end
end

local function empty_changes()
  return {enters = {}, leaves = {}, kept = {}, over = {}, turns = {}, buckets = {}, later = {}, lines = {}, bound = {}, unbound = {}}
end

-- What enters, and what leaves, where the group stands.
local function changes_of_line(changes, state)
  if not state.line then return changes end
  changes.lines[state.line] = changes.lines[state.line] or {enters = {}, leaves = {}}
  return changes.lines[state.line]
end

local function enter_line(queue, changes, place, state)
  local score, list = score_of(queue, state), changes_of_line(changes, state).enters
  local number = #list
  list[number + 1], list[number + 2] = queue.choice and string.format('%d', score) or '0', place .. state.name
  state.score = score
end

local function quit_line(changes, place, state)
  local list = changes_of_line(changes, state).leaves
  list[#list + 1] = place .. state.name
end

local function change_line(queue, changes, state)
  review_binding(queue, state)
  if state.is_unbound then changes.unbound[#changes.unbound + 1], state.is_unbound = state.name, nil end
  if state.is_bound_anew then
    local bound = changes.bound
    bound[#bound + 1], bound[#bound + 2], state.is_bound_anew = string.format('%d', state.bound_until), state.name, nil
  end
  local line = line_of(state)
  if line == state.line then return end
  for _, place in ipairs(state.before or places_in_group(queue, state, 0, state.going)) do quit_line(changes, place, state) end
  state.line, state.going, state.before = line, 0, nil
end

local function rearrange_line(queue, changes, state, allowed)
  local places, is_new = places_in_group(queue, state, 0, allowed), {}
  for _, place in ipairs(places) do is_new[place] = true end
  for _, place in ipairs(state.before) do
    if is_new[place] then is_new[place] = nil else quit_line(changes, place, state) end
  end
  for _, place in ipairs(places) do
    if is_new[place] then enter_line(queue, changes, place, state) end
  end
  state.going, state.before = #places, nil
end

-- is_anew: it is put in its place, where groups take turns.
local function change_going(queue, changes, state, allowed, is_anew)
  local going = state.going
  if state.before then
    rearrange_line(queue, changes, state, allowed)
  elseif allowed > going then
    local places = places_in_group(queue, state, going, allowed - going)
    for _, place in ipairs(places) do enter_line(queue, changes, place, state) end
    state.going = going + #places
    if going == 0 then return end
  elseif allowed < going then
    for _, place in ipairs(places_in_group(queue, state, allowed, going - allowed)) do quit_line(changes, place, state) end
    state.going = allowed
  end
  if state.going > 0 and (is_anew or queue.choice and score_of(queue, state) ~= state.score) then
    for _, place in ipairs(places_in_group(queue, state, 0, state.going)) do enter_line(queue, changes, place, state) end
  end
end

local function stored_text(queue, state)
  local leased, going, waiting, held, stopped = state.leased, state.going, state.waiting, state.held, state.stopped
  local digits, behind, front = known_digits, '', ''
  if state.listed > 0 then behind, front = list_head(queue, state), state.front end
  leased, going, waiting = digits[leased] or digits_of(leased), digits[going] or digits_of(going), digits[waiting] or digits_of(waiting)
  held = held + stopped == 0 and '0 0' or digits_of(held) .. ' ' .. digits_of(stopped)
  if state.bound_to then behind = string.format('\ns%s %d%s', state.bound_to, state.bound_until, behind) end
  if state.paused then behind = string.format('\np%d %s%s', state.paused, state.paused_by, behind) end
  if not queue.choice then return leased .. ' ' .. going .. ' ' .. waiting .. ' ' .. held .. behind .. front end
  local turn, weight = string.format('%d', state.turn), digits[state.weight] or digits_of(state.weight)
  return leased .. ' ' .. going .. ' ' .. waiting .. ' ' .. held .. ' ' .. turn .. ' ' .. weight .. behind .. front
end

-- What may go of the groups follows from their numbers; all of it is written. is_anew: see `change_going`. Whether something may go that could
-- not, or elsewhere.
local function save_groups(queue, states, is_anew)
  if not next(states) then return false end
  if queue.choice then give_missing_turns(queue, states) end
  local changes, known = empty_changes(), queue.group_states
  local kept, over, turns, later, buckets = changes.kept, changes.over, changes.turns, changes.later, changes.buckets
  local affinity, choice, rate, number = queue.affinity, queue.choice, queue.group_rate, 0
  local freed = queue.freed and queue.freed.states or {}
  for name, state in pairs(states) do
    freed[name] = nil
    if affinity or state.line or state.is_unbound then change_line(queue, changes, state) end
    local allowed = number_allowed(queue, state)
    if rate then
      local at = time_of_rate(queue, state, allowed)
      if at then later[#later + 1], later[#later + 2] = end_text(at), name end
      if state.is_paid then buckets[#buckets + 1], buckets[#buckets + 2], state.is_paid = end_text(state.full), name, false end
    end
    -- Nothing to do where none may go, and none could.
    if allowed > 0 or state.going > 0 or state.before then change_going(queue, changes, state, allowed, is_anew) end
    if state.going > 1 and state.listed > 0 then keep_in_front(queue, state, state.going) end
    if state.leased + state.waiting == 0 and is_over(state) then
      over[#over + 1], known[name] = name, false
      if choice and state.turn then turns[#turns + 1], turns[#turns + 2] = string.format('%d', state.turn), name end
    else
      kept[number + 1], kept[number + 2] = name, stored_text(queue, state)
      number = number + 2
    end
  end
  call_in_batches('ZREM', K.going(queue.name), changes.leaves)
  call_in_batches('ZADD', K.going(queue.name), changes.enters)
  call_in_batches('HSET', K.groups(queue.name), kept)
  call_in_batches('HDEL', K.groups(queue.name), over)
  call_in_batches('ZADD', K.turns(queue.name), turns)
  local are_lines_changed = next(changes.lines) ~= nil
  if changes.bound[1] or changes.unbound[1] or are_lines_changed then save_bindings(queue, changes.lines, changes.bound, changes.unbound) end
  if queue.group_rate then wait_for_rates(queue, buckets, later) end
  return changes.enters[1] ~= nil or are_lines_changed
end

-- Groups whose rate lets one more go by now: a bounded number. All of them, where the clock was set back behind what they wait for.
local function end_waits_for_rates(queue)
  local key, now, rate = K.later(queue.name), rate_clock(), queue.group_rate
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if not first then return end
  local is_set_back = first > now + rate.burst * rate.interval + 1000
  if first > now and not is_set_back then return wake_for_tokens(queue, rate, first, now) end
  local names = call('ZRANGE', key, '-inf', is_set_back and '+inf' or end_text(now), 'BYSCORE', 'LIMIT', 0, 200)
  call_in_batches('ZREM', key, names)
  save_groups(queue, load_groups(queue, names))
  first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first then wake_for_tokens(queue, rate, first, now) end
end

-- Groups of messages that enter and messages that are in none get their turns in the order in which they come. Gives those of the latter.
local function begin_turns(queue, states, refs, names)
  local list, seen = {}, {}
  for i, ref in ipairs(refs) do
    local state = states[names[i]]
    if not state then
      list[#list + 1] = {name = ''}
      seen[ref] = list[#list]
    elseif not state.turn and not seen[state] then
      seen[state], list[#list + 1] = true, state
    end
  end
  assign_turns(queue, list)
  return seen
end

-- Their holder may be stuck: others may have what else there is of these groups.
local function unbind_lapsed(queue, leases)
  local names = {}
  for _, lease in ipairs(leases) do names[#names + 1] = lease.group end
  if not names[1] then return end
  local states = load_groups(queue, names)
  for _, lease in ipairs(leases) do
    local state = states[lease.group]
    if state and state.bound_to == lease.holder then unbind(state) end
  end
  save_groups(queue, states)
end

-- Most queues have neither messages that failed and hold their groups nor batches that are leased: one look for both, once a call. Batches may be
-- of an earlier definition.
local function look_for_pins_and_batches(queue)
  local number = call('EXISTS', K.pinned(queue.name), K.batches(queue.name))
  local has_batches = number > 0 and call('EXISTS', K.batches(queue.name)) == 1
  if queue.has_batches == nil then queue.has_batches = has_batches end
  if queue.has_pins == nil then queue.has_pins = number == 2 or number == 1 and not has_batches end
end

local function has_pins(queue)
  if queue.has_pins == nil then look_for_pins_and_batches(queue) end
  return queue.has_pins
end

-- Whether batches of the queue are leased.
local function has_batches(queue)
  if queue.has_batches == nil then look_for_pins_and_batches(queue) end
  return queue.has_batches
end

-- Messages wait in their groups from now on; what is in no group may go. states: of all these groups; the caller saves them.
-- turns: what `begin_turns` gave, nil where that is to be done.
local function enter_groups(queue, states, refs, names, turns)
  if not refs[1] then return end
  local failed = has_pins(queue) and call('HMGET', K.pinned(queue.name), unpack(refs)) or {}
  local members, free, number = {}, {}, 0
  turns = turns or queue.choice and begin_turns(queue, states, refs, names)
  for i, ref in ipairs(refs) do
    local name = names[i]
    if name == '' then
      free[#free + 1], free[#free + 2] = turns and string.format('%d', turns[ref].turn) or 0, ref .. ' '
    else
      local state, has_failed = states[name], failed[i]
      remember_going(queue, state)
      number = number + 1
      members[2 * number - 1], members[2 * number] = '0', name .. (has_failed and '\0000' or '\0001') .. ref
      state.waiting = state.waiting + 1
    end
  end
  local before = call('ZCARD', K.grouped(queue.name))
  call_in_batches('ZADD', K.grouped(queue.name), members)
  call_in_batches('ZADD', K.going(queue.name), free)
  if call('ZCARD', K.grouped(queue.name)) == before + number then return end
  -- One was still there that had left its queue.
  for name, state in pairs(states) do
    local sorted = 0
    repeat
      local found = #sorted_places(queue, name, sorted, 1000, false)
      sorted = sorted + found
    until found < 1000
    state.waiting = sorted + state.listed
  end
end

-- Messages that were read from the log, each of a group, are listed in it, behind what is listed before; the caller saves the groups. are_all: nothing
-- else was read. Gives them: ref -> true; nil where they are all.
local function list_messages(queue, states, refs, names, are_all)
  local listed, lists, order, pieces, ends, texts = not are_all and {} or nil, {}, {}, {}, {}, {}
  local last, sub = -#list_suffix(queue) - 1, string.sub
  for i = 1, #refs do
    local ref, name = refs[i], names[i]
    local list = lists[name]
    if not list then
      list = {}
      lists[name], order[#order + 1] = list, name
      local first, number, behind = numbers_of_pieces(states[name])
      if behind > 0 and behind < V.listed_piece then ends[#ends + 1], ends[name] = piece_of(states[name], first + number - 1), #ends + 1 end
    end
    list[#list + 1] = sub(ref, 1, last)
    if listed then listed[ref] = true end
  end
  if ends[1] then texts = call('HMGET', K.listed(queue.name), unpack(ends)) end
  for i = 1, #order do
    local name = order[i]
    local state = states[name]
    -- What came back, or came due, may be behind it.
    if state.listed < state.waiting then remember_going(queue, state) end
    append_to_list(state, lists[name], ends[name] and texts[ends[name]], pieces)
  end
  call_in_batches('HSET', K.listed(queue.name), pieces)
  return listed
end

-- Messages without a group that may go get their place by another choice. One that has a turn keeps it.
local function place_groupless(queue, refs, turns)
  local last, without, names, places = queue.choice and load_round(queue).last or 0, {}, {}, {}
  for i, ref in ipairs(refs) do
    if turns[i] == 0 or turns[i] > last then without[#without + 1], names[#names + 1] = ref, '' end
  end
  local begun = queue.choice and begin_turns(queue, {}, without, names)
  for _, ref in ipairs(without) do
    places[#places + 1], places[#places + 2] = begun and string.format('%d', begun[ref].turn) or 0, ref .. ' '
  end
  call_in_batches('ZADD', K.going(queue.name), places)
end

-- Those of some refs that failed hold their groups no more. Of each the group, or false.
local function drop_pins(queue, refs)
  local pinned, failed = {}, {}
  if not has_pins(queue) then return pinned end
  for first = 1, #refs, 1000 do
    local last = math.min(first + 999, #refs)
    for i, name in ipairs(call('HMGET', K.pinned(queue.name), unpack(refs, first, last))) do
      pinned[first + i - 1] = name
      if name then failed[#failed + 1] = refs[first + i - 1] end
    end
  end
  call_in_batches('HDEL', K.pinned(queue.name), failed)
  return failed[1] and pinned or {}
end

-- Batches that are given: of each its group, the token of its first message, and its refs.
local function keep_batches(queue, texts)
  if not texts[1] then return end
  call_in_batches('HSET', K.batches(queue.name), texts)
  queue.has_batches = true
end

local function forget_batches(queue, states)
  if not has_batches(queue) then return end
  local over = {}
  for name, state in pairs(states) do
    if state.leased == 0 then over[#over + 1] = name end
  end
  call_in_batches('HDEL', K.batches(queue.name), over)
end

-- Groups of which leases ended in a call that gives messages, too: mostly the next one of each is given by it, and never stands among what may
-- go. Those of which something waits and may go are kept for that in `queue.freed`, in the order of what ended; the others stay in `states`.
-- Whoever gives takes them out of it (freed_groups.lua), and so does who saves one of them.
local function keep_freed(queue, states, names)
  local freed = queue.freed or {list = {}, states = {}}
  queue.freed = freed
  for _, name in ipairs(names) do
    local state = states[name]
    if state and state.going == 0 and not state.before and (state.turn or not queue.choice) and number_allowed(queue, state) > 0 then
      if not freed.states[name] then freed.list[#freed.list + 1], freed.states[name] = name, state end
      states[name] = nil
    end
  end
end

-- Those that were kept and nobody took.
local function save_freed(queue)
  local freed = queue.freed
  queue.freed = nil
  if freed then save_groups(queue, freed.states) end
end

-- Messages are leased no more: their groups have room for others. Before the leases are removed. values: of these, where the caller has them.
local function end_group_leases(queue, refs, values)
  local names, pinned = {}, drop_pins(queue, refs)
  for first = 1, values and 0 or #refs, 1000 do
    for _, value in ipairs(call('HMGET', K.leases(queue.name), unpack(refs, first, math.min(first + 999, #refs)))) do
      names[#names + 1] = value and string.match(value, '\n(.*)$') or ''
    end
  end
  for i, value in ipairs(values or {}) do
    local at = string.find(value, '\n', 1, true)
    names[i] = at and string.sub(value, at + 1) or ''
  end
  local states = load_groups(queue, names)
  for i, name in ipairs(names) do
    local state = states[name]
    if state then
      if state.leased > 0 then state.leased = state.leased - 1 end
      if pinned[i] == name and state.held > 0 then state.held = state.held - 1 end
    end
  end
  forget_batches(queue, states)
  if queue.keeps_freed then keep_freed(queue, states, names) end
  save_groups(queue, states)
end

-- Messages left the queue without a lease: what they held goes on.
local function unpin(queue, refs)
  local pinned, names = drop_pins(queue, refs), {}
  for i = 1, #refs do
    if pinned[i] then names[#names + 1] = pinned[i] end
  end
  if not names[1] then return end
  local states = load_groups(queue, names)
  for i, ref in ipairs(refs) do
    local state = states[pinned[i]]
    if state then
      remember_going(queue, state)
      -- Where it stood before all others, whatever its place in time: what is behind it may be older.
      state.waiting = state.waiting - call('ZREM', K.grouped(queue.name), state.name .. '\0000' .. ref)
      state.held = math.max(state.held - 1, 0)
    end
  end
  save_groups(queue, states)
end

-- Messages that failed hold their group no more: those that wait in it are at their places again, as all that never failed.
local function unmark_failed(queue, state, refs)
  if not refs[1] then return end
  remember_going(queue, state)
  for _, ref in ipairs(refs) do
    if call('ZREM', K.grouped(queue.name), state.name .. '\0000' .. ref) == 1 then
      call('ZADD', K.grouped(queue.name), 0, state.name .. '\0001' .. ref)
    end
  end
end

-- Messages came back that failed, and hold their groups until they are settled.
local function pin(queue, refs, names)
  if not refs[1] then return end
  local states, pins = load_groups(queue, names), {}
  for i, ref in ipairs(refs) do
    pins[2 * i - 1], pins[2 * i] = ref, names[i]
    states[names[i]].held = states[names[i]].held + 1
  end
  call_in_batches('HSET', K.pinned(queue.name), pins)
  queue.has_pins = true
  save_groups(queue, states)
end

-- Groups of which a message was given up stand still until somebody releases them.
local function stop_groups(queue, names, now)
  if not names[1] then return end
  local states = load_groups(queue, names)
  for _, state in pairs(states) do state.stopped = math.max(now or 1, 1) end
  save_groups(queue, states)
end

local function stop_groups_of(queue, leases, now)
  local names = {}
  for _, lease in ipairs(leases) do names[#names + 1] = lease.group end
  stop_groups(queue, names, now)
end

-- Of leases that ended what came back holds its group, until it is settled; what was given up stops it, where the queue says so.
-- has_failed: all were begun; known: as of attempts, what failed before; expired: batches by reason.
local function note_failures(queue, refs, leases, has_failed, known, expired, now)
  local failed, names, reasons, stopped = {}, {}, {}, {}
  for reason, batch in pairs(expired) do
    for _, ref in ipairs(batch.refs) do reasons[ref] = reason end
  end
  for i, ref in ipairs(refs) do
    local name, reason = leases[i].group, reasons[ref]
    if name and not reason and (has_failed or known[i]) then
      failed[#failed + 1], names[#names + 1] = ref, name
    elseif name and reason and reason ~= V.time_limit then
      stopped[#stopped + 1] = name
    end
  end
  pin(queue, failed, names)
  if queue.on_failure == V.stop then stop_groups(queue, stopped, now) end
end

-- What follows from a definition that was changed, or from what was repaired.
local function review_groups(queue, names)
  save_groups(queue, load_groups(queue, names), true)
end

-- Members that keep these keys in real tables: small ones are lists, which are searched from their heads. No group has
-- such a name, and the other one is the last of all that may go.
local function keep_group_tables(queue_name)
  call('HSET', K.groups(queue_name), string.rep('.', V.longest_group + 1), '0 0 0 0 0')
  call('ZADD', K.going(queue_name), '+inf', V.anchor)
end

-- Fields with the batch of a message, and with its group, where they do not say it themselves, as it is. batch: the token of its first message; nil of
-- none. begins: whether its group was bound to another subscription before, or to none.
local function with_group(fields, group, batch, begins)
  if not group then return fields end
  if not fields[3] and not batch and not begins then return {F.told_group, group, fields[1], fields[2]} end
  local named = batch and {F.told_batch, batch} or {}
  if begins then named[#named + 1], named[#named + 2] = F.told_begins, '1' end
  local says_group = false
  for i = 3, fields[1] == F.body and #fields or 0, 2 do says_group = says_group or fields[i] == F.in_group and fields[i + 1] == group end
  if says_group and not named[1] then return fields end
  if not says_group then named[#named + 1], named[#named + 2] = F.told_group, group end
  for i = 1, #fields do named[#named + 1] = fields[i] end
  return named
end

-- The same of a message that is leased, by the value of its lease.
local function with_group_of_lease(queue, fields, value)
  local token, mark, group = string.match(value, '^(%d+) [^\n]-(b?)\n(.*)$')
  local text = group and has_batches(queue) and call('HGET', K.batches(queue.name), group)
  local first, last = string.match(text or '', '^(%d+) (%d+)')
  if first and (tonumber(token) < tonumber(first) or tonumber(token) > tonumber(last)) then first = nil end
  return with_group(fields, group, first, mark == 'b')
end
