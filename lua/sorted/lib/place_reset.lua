--- place_reset: what has its place in a sorted queue goes back to `ready`, to be judged anew or to be plain.
--- @include queue, index_places

-- Whether all stand in order of arrival, so that the set may become `ready` as it is.
local function is_by_arrival(key)
  local first, last = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2], call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  return first == '0' and last == '0'
end

local function move_to_ready(queue, members)
  local refs, places = {}, {}
  for i = 1, #members, 2 do
    refs[#refs + 1] = ref_of_member(members[i])
    places[#places + 1], places[#places + 2] = 0, refs[#refs]
  end
  call_in_batches('ZADD', K.ready(queue.name), places)
  call_in_batches('HDEL', K.places(queue.name), refs)
end

-- One bounded step; true when nothing has a place any more. Renaming the set is a step for any number.
local function reset_places(queue)
  local all, ready = K.sorted(queue.name, V.none), K.ready(queue.name)
  release_held(queue)
  for id in string.gmatch(queue.sorted, '%S+') do
    if id ~= V.none then call('UNLINK', K.sorted(queue.name, id)) end
    call('HDEL', K.filters(queue.name), 'place ' .. id)
  end
  expire_anew(queue)
  if call('EXISTS', all) == 0 then return true end
  if call('ZCARD', ready) <= V.batch and is_by_arrival(all) then
    local returned = call('ZRANGE', ready, 0, -1, 'WITHSCORES')
    call('RENAME', all, ready)
    move_to_ready(queue, returned)
    return true
  end
  move_to_ready(queue, call('ZPOPMIN', all, V.batch))
  return call('EXISTS', all) == 0
end

-- Some steps of it; false while something still has its former place: then nothing can be judged and nothing given.
local function reset_places_to_judge(queue, plan)
  for _ = 1, 3 do
    if reset_places(queue) then
      call('HDEL', K.filters(queue.name), F.resort)
      plan.trees.resort, plan.places = nil, {}
      return true
    end
  end
  return false
end
