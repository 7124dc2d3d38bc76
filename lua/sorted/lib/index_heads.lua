--- index_heads: the first message that somebody free may have, by the indexes of their filters, and the best of those.
--- @include free_subscriptions, set_rank, sort_step

-- ended: nothing more can come of its index; empty: nothing is written there.
local function begin_room(room, wanted)
  room.ended, room.empty = false, false
  room.page, room.size, room.at, room.read, room.step = {}, 0, 1, 0, math.min(room.total, wanted)
end

-- The next entry of a room's index that nobody was given yet; nil at its end, or where it is not built yet. Behind what
-- is written comes what was read in this call.
local function head_of_index(queue, plan, room, given)
  while true do
    while room.at > room.size do
      if room.last == 'fresh' then
        room.ended = true
        return nil
      end
      room.at = 1
      if room.last then
        room.page, room.last = plan.fresh.indexes[room.filter], 'fresh'
        room.size = #room.page
      else
        local first, key = room.read, K.sorted(queue.name, room.filter)
        room.page = call('ZRANGE', key, first, first + room.step - 1, 'WITHSCORES')
        room.size = #room.page
        room.read, room.last = first + room.step, room.size < 2 * room.step
        if first == 0 then room.empty = room.size == 0 end
      end
    end
    local member, score = room.page[room.at], room.page[room.at + 1]
    if room.last == 'fresh' then member, score = score, member end
    local place = plan.places[room.filter]
    if place and (place.member == '' or is_before(place.score, place.member, tonumber(score), member)) then
      return nil
    end
    if not given[member] then return member, score end
    room.at = room.at + 2
  end
end

-- The rooms whose index has the first message of all at its head; they move on to the next. Of several rooms those that are full or at
-- their end leave the list. are_several: they were at first.
local function first_of_indexes(queue, plan, rooms, given, are_several)
  local first, first_score, matching, number, kept = nil, nil, nil, #rooms, 0
  if not are_several then
    first = head_of_index(queue, plan, rooms[1], given)
    rooms[1].at = rooms[1].at + 2
    return first, rooms
  end
  for i = 1, number do
    local room, member, score = rooms[i], nil, nil
    local has_place = room.list[1] or room.more
    if has_place then member, score = head_of_index(queue, plan, room, given) end
    if has_place and not room.ended then
      kept = kept + 1
      if kept < i then rooms[kept] = room end
    end
    if member and member == first then
      matching[#matching + 1] = room
    elseif member and (not first or is_before(tonumber(score), member, first_score, first)) then
      first, first_score, matching = member, tonumber(score), {room}
    end
  end
  for i = number, kept + 1, -1 do rooms[i] = nil end
  if not first then return nil end
  for _, room in ipairs(matching) do room.at = room.at + 2 end
  return first, matching
end

-- The best free subscription of several rooms, its room, and how many messages in a row are its own.
local function best_of_rooms(rooms, alone)
  local found, found_room, found_run = nil, nil, 0
  for _, room in ipairs(rooms) do
    local subscription, run = best_free(room)
    if subscription and (not found or subscription.score < found.score
        or subscription.score == found.score and subscription.id < found.id) then
      found, found_room, found_run = subscription, room, alone and run or 1
    end
  end
  return found, found_room, found_run
end

-- Refs of one topic end alike, so its log is spelled once.
local spelled_logs = {}

-- A ref begins with two numbers, each behind a letter that counts its digits; what follows is the same in all of one topic. Taking the parts
-- by their places costs less than a pattern.
local function fields_of_ref(ref)
  local byte, sub = string.byte, string.sub
  local ms_last = byte(ref) - 95
  local last = ms_last + byte(ref, ms_last + 1) - 95
  local ending, id = sub(ref, last + 1), sub(ref, 2, ms_last) .. '-' .. sub(ref, ms_last + 2, last)
  local log = spelled_logs[ending]
  if not log then
    log = K.log(string.sub(ending, 2))
    spelled_logs[ending] = log
  end
  local entry = call('XRANGE', log, id, id)[1]
  return entry and entry[2]
end
