--- check_groups: a part of a queue's groups against what is leased of them and waits in them, or a part of what waits against its groups.
--- ARGV now, queue_name, source, cursor, repair
--- FAIL UNKNOWN_QUEUE
--- GIVES {cursor of the next part or '0', groups that count wrongly, messages in a wrong place, 1 if leases are too many to be counted else 0}
--- FLAGS allow-oom
--- @include clock, fail, group_names, group_state, listing, listing_form, index_places, timetable
-- source: `groups`, `leases` for groups that are not known, `placed`, `listed` for what the log says of lists, `going`, `lines`, `bound`, `turns`, `batches`; `rates`, also of a queue without groups. With
-- repair 1 all of it is mended.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.concurrency and source ~= 'rates' then return {'0', 0, 0, 0} end
local counts, places, plan, unknown = 0, 0, load_plan(queue), {}
local is_counted = call('HLEN', K.leases(queue_name)) <= 5000 and call('HLEN', K.pinned(queue_name)) <= 5000
local leased, failed, in_hands = {}, {}, {}

local function count_leases()
  local leases = call('HGETALL', K.leases(queue_name))
  for i = 2, #leases, 2 do
    local token, name = string.match(leases[i], '^(%d+)[^\n]*\n(.*)$')
    if name then
      leased[name], in_hands[name] = (leased[name] or 0) + 1, in_hands[name] or {}
      table.insert(in_hands[name], {ref = leases[i - 1], token = tonumber(token)})
    end
  end
  for _, name in ipairs(call('HVALS', K.pinned(queue_name))) do failed[name] = (failed[name] or 0) + 1 end
end

-- How many of a group have their place, or are listed, as they are found: thousand by thousand.
local function count_each(give)
  local number, found = 0, 1000
  while found == 1000 do
    found = #give(number)
    number = number + found
  end
  return number
end

local function count_waiting(state)
  local listed = count_each(function(from) return listed_refs(queue, state, from, 1000) end)
  return count_each(function(from) return sorted_places(queue, state.name, from, 1000, false) end), listed
end

-- A list that is not as it says is given up: its messages are unread, and all that is get their places by the log.
local function drop_list(state)
  local first, number = numbers_of_pieces(state)
  local pieces = {}
  for i = 1, number do pieces[i] = piece_of(state, first + i - 1) end
  call_in_batches('HDEL', K.listed(queue_name), pieces)
  empty_list(state)
  set_listing_form(queue, V.listing_ends)
end

-- Of a group of which its rate lets more go than may go now: whether it is noted when. Those whose time has come are looked at next.
local function waits_rightly(state)
  local at = tonumber(call('ZSCORE', K.later(queue_name), state.name))
  if state.going == number_allowed(queue, state) then
    local due = time_of_rate(queue, state, state.going)
    return not due or at and at <= due + 1
  end
  return at and at <= rate_clock() and state.going < number_allowed(queue, state)
end

-- Whether those of a group that may go are its first ones, as many as it says, and each in its place.
local function has_right_going(state)
  -- Its list is void: whoever takes of the group finds that out.
  if state.before then return true end
  local places = places_in_group(queue, state, 0, state.going)
  for _, place in ipairs(places) do
    local score = call('ZSCORE', going_key(queue, state), place .. state.name)
    if not score or tonumber(score) ~= state.score then return false end
  end
  if queue.group_rate then return #places == state.going and waits_rightly(state) end
  return #places == state.going and state.going == number_allowed(queue, state)
end

-- Whether it is noted until when a group is bound, and for whom it waits.
local function has_right_binding(state)
  if not state.bound_to then return true end
  local noted = tonumber(call('ZSCORE', K.bound(queue_name), state.name))
  local may_lack = state.leased > 0 and state.bound_until <= ms
  if noted ~= state.bound_until and not (may_lack and not noted) then return false end
  return state.going == 0 or call('ZSCORE', K.lines(queue_name), state.bound_to) ~= false
end

-- The text of a batch of all that is leased of a group, in the order of its tokens.
local function batch_of_leases(name)
  local items, refs = in_hands[name] or {}, {}
  table.sort(items, function(a, b) return a.token < b.token end)
  for i, item in ipairs(items) do refs[i] = item.ref end
  return items[1] and string.format('%.0f %.0f %s', items[1].token, items[#items].token, table.concat(refs, ' '))
end

-- Whether what is leased of a group is of one batch that is known, where groups go in batches.
local function has_right_batch(name)
  if not queue.batch or (leased[name] or 0) < 2 then return true end
  local first, last, refs = string.match(call('HGET', K.batches(queue_name), name) or '', '^(%d+) (%d+) (.*)$')
  for _, item in ipairs(in_hands[name]) do
    local is_known = first and item.token >= tonumber(first) and item.token <= tonumber(last)
    if not is_known or not string.find(' ' .. refs .. ' ', ' ' .. item.ref .. ' ', 1, true) then return false end
  end
  return true
end

-- A batch is of a group of which something is leased.
local function check_batch(name)
  if leased[name] then return end
  counts = counts + 1
  if repair == '1' then call('HDEL', K.batches(queue_name), name) end
end

local function check_state(state)
  local name, sorted, listed = state.name, count_waiting(state)
  local is_right_list = state.listed == listed
  local is_right = state.leased == (leased[name] or 0) and state.held == (failed[name] or 0) and state.waiting == sorted + listed and is_right_list
  local is_right_batch = has_right_batch(name)
  if is_right and is_right_batch and has_right_going(state) and has_right_binding(state) then return end
  counts = counts + 1
  if repair ~= '1' then return end
  if not is_right_batch then call('HSET', K.batches(queue_name), name, batch_of_leases(name)) end
  for _, place in ipairs(places_in_group(queue, state, 0, 1000)) do
    call('ZREM', K.going(queue_name), place .. name)
    if state.line then call('ZREM', going_key(queue, state), place .. name) end
  end
  if not is_right_list then drop_list(state) end
  state.is_bound_anew = state.bound_to ~= nil
  local line = state.line
  state.leased, state.held, state.waiting, state.going = leased[name] or 0, failed[name] or 0, sorted + state.listed, 0
  save_groups(queue, {[name] = state}, true)
  if line then note_lines(queue, {[line] = true}) end
end

local function check_states(names)
  local states = load_groups(queue, names)
  for _, state in pairs(states) do check_state(state) end
end

-- A message that has a place, and its group does not know it: it is placed anew.
local function check_place(ref)
  local topic, id = parse_ref(ref)
  local entry = topic and call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return end
  local name = group_name(plan, ref, entry[2], ms)
  local scores = name == '' and call('ZMSCORE', K.going(queue_name), ref .. ' ')
    or call('ZMSCORE', K.grouped(queue_name), name .. '\0000' .. ref, name .. '\0001' .. ref)
  if scores[1] or scores[2] then
    if name ~= '' and is_counted and call('HEXISTS', K.groups(queue_name), name) == 0 then unknown[name] = true end
    return
  end
  places = places + 1
  if repair ~= '1' then return end
  remove_from_indexes(queue, {ref}, {ref})
  call('ZADD', K.ready(queue_name), 0, ref)
end

-- A part of the log behind an ID: what is unread up to where the queue has listed is in the list of its group. Gives where to go on.
local function check_listed(after)
  local listing = read_listing(queue)
  if not listing or listing.form == V.listing_ends then return '0' end
  if after == '0' or order_of(after) < order_of(listing.read) then after = listing.read end
  local make_ref, refs = ref_maker(listing.topic), {}
  local entries = call('XRANGE', K.log(listing.topic), '(' .. after, listing.id, 'COUNT', 25)
  for i, entry in ipairs(entries) do refs[i] = make_ref(entry[1]) end
  for i, how in ipairs(refs[1] and call('HMGET', K.ahead(queue_name), unpack(refs)) or {}) do
    local name = not how and group_name(plan, refs[i], entries[i][2], ms)
    local state = name and name ~= '' and load_groups(queue, {name})[name]
    if name and not (state and listed_refs(queue, state, rank_in_list(queue, state, refs[i]), 1)[1] == refs[i]) then
      places = places + 1
      if repair == '1' then set_listing_form(queue, V.listing_ends) end
    end
  end
  return #entries == 25 and entries[25][1] or '0'
end

-- line: nil where what is bound to no subscription stands.
local function check_going(member, line)
  local item = item_of_member(member)
  if not item or item.name == '' and not line then return end
  local state = load_groups(queue, {item.name})[item.name]
  for _, place in ipairs(state and state.line == line and (state.before or places_in_group(queue, state, 0, state.going)) or {}) do
    if place .. item.name == member then return end
  end
  places = places + 1
  if repair == '1' then call('ZREM', line and K.going_of(queue_name, line) or K.going(queue_name), member) end
end

-- The part of the lines behind `<rank of the subscription> <+ or nothing> <cursor>`. Gives the next one.
local function check_lines(after)
  local rank, busy, at = string.match(after, '^(%d+) (%+?) (%d+)$')
  rank, busy, at = tonumber(rank or 0), busy or '', at or '0'
  local id, score = unpack(call('ZRANGE', K.lines(queue_name), rank, rank, 'WITHSCORES'))
  if not id then return '0' end
  local is_idle = call('EXISTS', K.going_of(queue_name, id)) == 1
  if is_idle ~= (tonumber(score) == 0) or not is_idle and call('EXISTS', K.going_of(queue_name, id .. '+')) == 0 then
    places = places + 1
    if repair == '1' then note_lines(queue, {[id] = true}) end
  end
  local scanned = call('ZSCAN', K.going_of(queue_name, id .. busy), at, 'COUNT', 25)
  for i = 1, #scanned[2], 2 do check_going(scanned[2][i], id .. busy) end
  if scanned[1] ~= '0' then return rank .. ' ' .. busy .. ' ' .. scanned[1] end
  return busy == '' and rank .. ' + 0' or rank + 1 .. '  0'
end

-- Until when a group is bound is noted of those that are.
local function check_bound(name, noted)
  local state = load_groups(queue, {name})[name]
  if state.bound_until == tonumber(noted) then return end
  counts = counts + 1
  if repair ~= '1' then return end
  if state.bound_until then call('ZADD', K.bound(queue_name), state.bound_until, name) else call('ZREM', K.bound(queue_name), name) end
end

local function check_due_bindings()
  if call('EXISTS', K.bound(queue_name)) == 0 or call('ZSCORE', K.due(), 'affinity ' .. queue_name) then return end
  counts = counts + 1
  if repair == '1' then add_due(ms, 'affinity ' .. queue_name, 'LT') end
end

-- A turn that is kept is of a group of which nothing is there, and none is higher than the last one.
local function check_turn(name, turn)
  local last = load_round(queue).last
  if tonumber(turn) <= last and call('HEXISTS', K.groups(queue_name), name) == 0 then return end
  counts = counts + 1
  if repair == '1' then call('ZREM', K.turns(queue_name), name) end
end

-- A bucket of a rate that there is, and not emptier than empty.
local function check_bucket(name, full)
  local rate = queue.rate
  if name ~= '' then rate = queue.group_rate end
  -- The clock has gone on since it was written, so that it is before its bound.
  if rate and tonumber(full) <= bounded_end(rate, math.huge, rate_clock()) + 1 then return end
  counts = counts + 1
  if repair ~= '1' then return end
  if rate then
    call('ZADD', K.rates(queue_name), end_text(bounded_end(rate, math.huge, rate_clock())), name)
  else
    call('ZREM', K.rates(queue_name), name)
  end
end

-- What waits for a rate is in the timetable, and so is what is to be forgotten.
local function check_due_rates()
  local has_some = call('EXISTS', K.rates(queue_name), K.later(queue_name)) > 0
  if not has_some or call('ZSCORE', K.due(), 'rates ' .. queue_name) then return end
  counts = counts + 1
  if repair == '1' then add_due(ms, 'rates ' .. queue_name, 'LT') end
end

local following = '0'
if source == 'groups' or source == 'leases' or source == 'batches' then
  if not is_counted then return {'0', 0, 0, 1} end
end
if source == 'leases' then
  count_leases()
  for _, found in ipairs({leased, failed}) do
    for name in pairs(found) do
      if call('HEXISTS', K.groups(queue_name), name) == 0 then unknown[name] = true end
    end
  end
elseif source == 'lines' then
  following = check_lines(cursor)
elseif source == 'listed' then
  following = check_listed(cursor)
else
  local keys = {groups = K.groups(queue_name), placed = K.sorted(queue_name, V.none), going = K.going(queue_name),
    turns = K.turns(queue_name), rates = K.rates(queue_name), bound = K.bound(queue_name), batches = K.batches(queue_name)}
  local scanned = call((source == 'groups' or source == 'batches') and 'HSCAN' or 'ZSCAN', keys[source], cursor, 'COUNT', 25)
  following = scanned[1]
  if source == 'rates' and cursor == '0' then check_due_rates() end
  if source == 'bound' and cursor == '0' then check_due_bindings() end
  if source == 'batches' and scanned[2][1] then count_leases() end
  for i = 1, #scanned[2], 2 do
    local member = scanned[2][i]
    if source == 'placed' then
      check_place(member)
    elseif source == 'going' and member ~= V.anchor then
      check_going(member)
    elseif source == 'turns' then
      check_turn(member, scanned[2][i + 1])
    elseif source == 'batches' then
      check_batch(member)
    elseif source == 'bound' then
      check_bound(member, scanned[2][i + 1])
    elseif source == 'rates' then
      check_bucket(member, scanned[2][i + 1])
    elseif source == 'groups' and #member <= V.longest_group then
      unknown[member] = true
    end
  end
  if next(unknown) then count_leases() end
end
local names = {}
for name in pairs(unknown) do names[#names + 1] = name end
check_states(names)
if counts + places > 0 and repair == '1' then add_due(ms, 'dispatch ' .. queue_name, 'NX') end
return {following, counts, places, 0}
