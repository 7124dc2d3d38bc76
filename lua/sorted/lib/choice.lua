--- choice: which message goes to whom, in order.
--- @include index_heads, index_places, journal, watchers, deliverable

local function settle_missing(queue, refs)
  if #refs == 0 then return end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.missing, '', refs, '')
  notify_watchers(queue, refs)
end

-- Reads the messages of some members from one on at once, where the IDs in their log count up by one: ref -> fields. most: how many.
-- Returns their bytes and their number, 0 where only one would be read.
local function read_stretch(queue, members, from, most, read)
  local first, following = members[from], members[from + 1]
  local digit = #first - #queue.topic - 1
  -- The last digit says of most that they do not follow.
  if queue.topic == '' or not following or #following ~= #first then return 0, 0 end
  local step = string.byte(following, digit) - string.byte(first, digit)
  if step ~= 1 and step ~= -9 then return 0, 0 end
  local ms, sequence, ending = string.match(first, '^%l(%d+)%l(%d+)(/.*)$')
  if not ms or #sequence > 15 or ending ~= '/' .. queue.topic then return 0, 0 end
  local stem, number, count = string.sub(first, 1, digit - #sequence), tonumber(sequence), math.min(most, #members - from + 1)
  -- Mostly all of them do, which the last one says; what is in another order there is read by itself.
  local text = string.format('%.0f', number + count - 1)
  if #text ~= #sequence or members[from + count - 1] ~= stem .. text .. ending then
    count, text = 1, sequence
    while count < most do
      local next_text = string.format('%.0f', number + count)
      if #next_text ~= #sequence or members[from + count] ~= stem .. next_text .. ending then break end
      count, text = count + 1, next_text
    end
  end
  if count == 1 then return 0, 0 end
  local bytes, at = 0, #ms + 2
  for _, entry in ipairs(call('XRANGE', K.log(queue.topic), ms .. '-' .. sequence, ms .. '-' .. text)) do
    read[stem .. string.sub(entry[1], at) .. ending] = entry[2]
    bytes = bytes + size_of_fields(entry[2])
  end
  return bytes, count
end

-- The next members of an index from a rank on; behind all of them what was read in this call. The second value says that these are the latter.
local function next_members(queue, plan, filter, rank, count)
  local members = call('ZRANGE', K.sorted(queue.name, filter), rank, rank + count - 1)
  if #members > 0 then return members, false end
  local fresh = plan.fresh.indexes[filter]
  for i = 2, #fresh, 2 do members[i / 2] = fresh[i] end
  return members, true
end

-- `choose_messages` where one room has one free subscription and its index is built: what is first is for that one.
local function choose_for_one(queue, plan, room, wanted, token, read, now)
  local subscription = room.list[1]
  local most = math.max(math.min(wanted, subscription and subscription.max - subscription.leased or 0), 0)
  local refs, fields, subscriptions, ends, given, over, missing = {}, {}, {}, {}, {}, {}, {}
  local number, bytes, rank, at, is_fresh = 0, 0, 0, 1, false
  -- The first stretch is short, since its bodies may be large. Where the first messages have none, no more is looked for.
  local stretch, trials = 4, 3
  local members, written = {}, {refs = {}, members = {}}
  while number < most and bytes < V.bytes and #missing + #over < V.batch do
    if not members[at] then
      if is_fresh then break end
      rank = #written.refs
      members, is_fresh = next_members(queue, plan, room.filter, rank, most)
      at = 1
      if not members[1] then break end
    end
    local member = members[at]
    local ref = ref_of_member(member)
    if trials > 0 and not read[ref] and not is_fresh then
      local size, count = read_stretch(queue, members, at, stretch, read)
      trials = count > 0 and 3 or trials - 1
      if count > 0 then stretch = math.max(2, math.floor(V.bytes * count / (4 * math.max(size, 1)))) end
    end
    local entry, fate, ends_at = read[ref] or fields_of_ref(ref), nil, nil
    at = at + 1
    if is_fresh then
      given[member] = true
    else
      written.refs[rank + at - 1], written.members[rank + at - 1] = ref, member
    end
    if entry and (#entry > 2 or queue.life > 0) then fate, ends_at = fate_of(queue, ref, entry, true, now) end
    if fate then
      over[#over + 1] = ref
    elseif entry then
      number = number + 1
      refs[number], fields[number], subscriptions[number], ends[number] = ref, entry, subscription, ends_at or false
      bytes = bytes + size_of_fields(entry)
    else
      missing[#missing + 1] = ref
    end
  end
  if number > 0 then give_to_best(room, queue, subscription, number, token + number) end
  local cut = number == wanted or bytes >= V.bytes or #missing + #over >= V.batch
  local more = cut and wanted > 0 and (members[at] ~= nil
    or not is_fresh and next_members(queue, plan, room.filter, #written.refs, 1)[1] ~= nil)
  remove_first_places(queue, room.filter, written.refs, written.members)
  settle_missing(queue, missing)
  expire_read(queue, over)
  return {refs = refs, fields = fields, subscriptions = subscriptions, given = given, more = more, ends = ends,
    over = #over, is_fresh = #written.refs == 0}
end

-- Gives refs, fields, ends of lives and subscriptions of at most `wanted` messages, and `given`, their members; tokens rise from `token`.
-- is_fresh: all were read from the logs in this call, and are in their order. What somebody removed from its log is settled as missing. A room that is full takes part no more.
local function choose_messages(queue, plan, rooms, wanted, token, read, now)
  if not rooms[2] and not rooms[1].more and not rooms[1].list[2] and not plan.places[rooms[1].filter] then
    return choose_for_one(queue, plan, rooms[1], wanted, token, read, now)
  end
  local refs, fields, subscriptions, given, written, missing = {}, {}, {}, {}, {refs = {}, members = {}}, {}
  local ends, over = {}, {}
  local left = {unpack(rooms)}
  for _, room in ipairs(rooms) do begin_room(room, wanted) end
  local number, subscription, room, run, taken = 0, nil, nil, 0, 0
  local bytes, marked = 0, 0
  while number < wanted and bytes < V.bytes and #missing + #over < V.batch do
    if run == 0 and not rooms[2] then subscription, room, run = best_of_rooms(rooms, true) end
    local member, matching = nil, nil
    if subscription or rooms[2] then member, matching = first_of_indexes(queue, plan, left, given, rooms[2] ~= nil) end
    if not member then break end
    if rooms[2] then subscription, room, run = best_of_rooms(matching, false) end
    local ref = ref_of_member(member)
    local entry = subscription and (read[ref] or fields_of_ref(ref))
    given[member] = true
    if subscription and matching[1].last ~= 'fresh' then
      marked = marked + 1
      written.refs[marked], written.members[marked] = ref, member
    end
    local fate, at = nil, nil
    if entry and (#entry > 2 or queue.life > 0) then fate, at = fate_of(queue, ref, entry, true, now) end
    if fate then
      over[#over + 1] = ref
    elseif entry then
      number, run, taken = number + 1, run - 1, taken + 1
      refs[number], fields[number], subscriptions[number], ends[number] = ref, entry, subscription, at or false
      bytes = bytes + size_of_fields(entry)
    elseif subscription then
      missing[#missing + 1] = ref
    end
    if taken > 0 and (run == 0 or number == wanted) then
      give_to_best(room, queue, subscription, taken, token + number)
      run, taken = 0, 0
    end
  end
  if taken > 0 then give_to_best(room, queue, subscription, taken, token + number) end
  local cut = number == wanted or bytes >= V.bytes or #missing + #over >= V.batch
  local more = cut and wanted > 0 and first_of_indexes(queue, plan, left, given, rooms[2] ~= nil) ~= nil
  if marked > 0 then remove_from_indexes(queue, written.refs, written.members, rooms) end
  settle_missing(queue, missing)
  expire_read(queue, over)
  return {refs = refs, fields = fields, subscriptions = subscriptions, given = given, more = more, ends = ends,
    over = #over, is_fresh = marked == 0}
end
