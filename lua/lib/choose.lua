--- choose: which message goes to whom, in order: the first one that somebody free may have, to the best of those.
--- @include room, places, rank, index

-- The next entry of a room's index that nobody was given yet; nil at its end, or where it is not built yet.
local function head_of(queue, plan, room, given)
  while true do
    if room.at > #room.page then
      if room.last then return nil end
      room.page = call('ZRANGE', K.sorted(queue.name, room.filter), room.read, room.read + room.step - 1, 'WITHSCORES')
      room.read, room.at = room.read + room.step, 1
      room.last = #room.page < 2 * room.step
      if not room.page[1] then return nil end
    end
    local member, score = room.page[room.at], tonumber(room.page[room.at + 1])
    local place = plan.places[room.filter]
    if place and (place.member == '' or is_before(place.score, place.member, score, member)) then return nil end
    if not given[member] then return member, score end
    room.at = room.at + 2
  end
end

-- The rooms whose index has the first message of all at its head; they move on to the next.
local function first_of(queue, plan, rooms, given)
  local first, first_score, matching = nil, nil, nil
  for _, room in ipairs(rooms) do
    local member, score = nil, nil
    if room.list[1] or room.more then member, score = head_of(queue, plan, room, given) end
    if member and member == first then
      matching[#matching + 1] = room
    elseif member and (not first or is_before(score, member, first_score, first)) then
      first, first_score, matching = member, score, {room}
    end
  end
  for _, room in ipairs(matching or {}) do room.at = room.at + 2 end
  return first, matching
end

-- The best free subscription of several rooms, and its room.
local function best_of(rooms)
  local found, found_room = nil, nil
  for _, room in ipairs(rooms) do
    local subscription = best(room)
    if subscription and (not found or subscription.score < found.score
        or subscription.score == found.score and subscription.id < found.id) then
      found, found_room = subscription, room
    end
  end
  return found, found_room
end

local function fields_of(ref)
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  return entry and entry[2]
end

-- Gives refs, fields and subscriptions of at most `wanted` messages; tokens rise from `token`. What somebody removed from
-- its log is settled as missing. Rooms that are full take part no more.
local function choose(queue, plan, rooms, wanted, token, read)
  local out, given, refs, members, missing = {refs = {}, fields = {}, subscriptions = {}}, {}, {}, {}, {}
  for _, room in ipairs(rooms) do room.page, room.at, room.read, room.step = {}, 1, 0, math.min(room.total, wanted) end
  while #out.refs < wanted do
    local member, matching = first_of(queue, plan, rooms, given)
    if not member then break end
    local subscription, room = best_of(matching)
    local ref = ref_of_member(member)
    local fields = subscription and (read[ref] or fields_of(ref))
    if fields then
      local number = #out.refs + 1
      out.refs[number], out.fields[number], out.subscriptions[number] = ref, fields, subscription
      give(room, queue, subscription, 1, token + number)
    elseif subscription then
      missing[#missing + 1] = ref
    end
    given[member] = true
    if subscription then refs[#refs + 1], members[#members + 1] = ref, member end
  end
  out.more = #out.refs == wanted and wanted > 0 and first_of(queue, plan, rooms, given) ~= nil
  if #members > 0 then remove_sorted(queue, refs, members) end
  if #missing > 0 then
    call_in_batches('HDEL', K.attempts(queue.name), missing)
    journal(queue.name, V.missing, '', missing)
  end
  return out
end
