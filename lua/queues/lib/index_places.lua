--- index_places: where a message of a sorted queue stands: in the index of `none` and of every filter that it matches.
--- @include queue, batch, timetable

local function member_of(queue, ref)
  return (call('HGET', K.places(queue.name), ref) or '') .. ref
end

local function ref_of_member(member)
  return string.byte(member) == 35 and string.sub(member, 5) or member
end

-- rooms: of some filters what their indexes were seen to be, or nil.
local function remove_from_indexes(queue, refs, members, rooms)
  local empty = {}
  for _, room in ipairs(rooms or {}) do empty[room.filter] = room.empty end
  for id in string.gmatch(queue.sorted, '%S+') do
    if not empty[id] then call_in_batches('ZREM', K.sorted(queue.name, id), members) end
  end
  call_in_batches('HDEL', K.places(queue.name), refs)
  if queue.life > 0 then call_in_batches('ZREM', K.lives(queue.name), refs) end
end

-- The same of those that stand first in the index of a filter, all of them.
local function remove_first_places(queue, filter, refs, members)
  if not refs[1] then return end
  if queue.sorted ~= filter then return remove_from_indexes(queue, refs, members) end
  call('ZREMRANGEBYRANK', K.sorted(queue.name, filter), 0, #refs - 1)
  local prefixed = {}
  for i, ref in ipairs(refs) do
    if members[i] ~= ref then prefixed[#prefixed + 1] = ref end
  end
  call_in_batches('HDEL', K.places(queue.name), prefixed)
  if queue.life > 0 then call_in_batches('ZREM', K.lives(queue.name), refs) end
end

-- The pass over what is over by the order of arrival may have been where something comes to now.
local function expire_anew(queue)
  if queue.life == 0 then return end
  call('HDEL', K.queue(queue.name), F.aged)
  add_due(0, 'expiry ' .. queue.name, 'LT')
end

-- What was held behind a barrier is read as if it had come back; it is not more than one step read.
local function release_held(queue)
  local places = {}
  for i, ref in ipairs(call('ZRANGE', K.held(queue.name), 0, -1)) do places[2 * i - 1], places[2 * i] = 0, ref end
  if not places[1] then return end
  call_in_batches('ZADD', K.ready(queue.name), places)
  call('DEL', K.held(queue.name))
  expire_anew(queue)
end
