--- choice: which message goes to whom, in order.
--- @include index_heads, index_places, journal, watchers, deliverable

local function settle_missing(queue, refs)
  if #refs == 0 then return end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.missing, '', refs, '')
  notify_watchers(queue, refs)
end

-- The next members of an index, from a rank on, and behind them what was read in this call: `at` is where they go on, nil at their end.
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
  for _, room in ipairs(rooms) do begin_room(room, wanted) end
  local number, subscription, room, run, taken = 0, nil, nil, 0, 0
  local bytes, marked = 0, 0
  while number < wanted and bytes < V.bytes and #missing + #over < V.batch do
    if run == 0 and not rooms[2] then subscription, room, run = best_of_rooms(rooms, true) end
    local member, matching = nil, nil
    if subscription or rooms[2] then member, matching = first_of_indexes(queue, plan, rooms, given) end
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
  local more = cut and wanted > 0 and first_of_indexes(queue, plan, rooms, given) ~= nil
  if marked > 0 then remove_from_indexes(queue, written.refs, written.members) end
  settle_missing(queue, missing)
  expire_read(queue, over)
  return {refs = refs, fields = fields, subscriptions = subscriptions, given = given, more = more, ends = ends,
    over = #over, is_fresh = marked == 0}
end
