--- places: where a message of a sorted queue stands: in the index of `none` and of every filter that it matches.
--- @include queue, batch

local function member_of(queue, ref)
  return (call('HGET', K.places(queue.name), ref) or '') .. ref
end

local function ref_of_member(member)
  return string.byte(member) == 35 and string.sub(member, 5) or member
end

local function remove_sorted(queue, refs, members)
  for id in string.gmatch(queue.sorted, '%S+') do call_in_batches('ZREM', K.sorted(queue.name, id), members) end
  call_in_batches('HDEL', K.places(queue.name), refs)
end

-- What was held behind a barrier is read as if it had come back.
local function release_held(queue)
  if call('EXISTS', K.held(queue.name)) == 0 then return end
  call('ZUNIONSTORE', K.ready(queue.name), 2, K.ready(queue.name), K.held(queue.name))
  call('DEL', K.held(queue.name))
end
