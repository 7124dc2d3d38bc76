--- resort: what has its place in a sorted queue goes back to `ready`, to be judged anew or to be plain.
--- @include queue, batch

-- One key is renamed; what else waits is moved over to it, if it is not too much for one call. True when it was done.
local function empty_places(queue)
  local all, ready = K.sorted(queue.name, V.none), K.ready(queue.name)
  if call('ZCARD', ready) > V.batch and call('ZCARD', all) > V.batch then return false end
  local from, to = ready, all
  if call('ZCARD', ready) > call('ZCARD', all) then from, to = all, ready end
  for _, key in ipairs({from, K.held(queue.name)}) do
    local places = {}
    for _, member in ipairs(call('ZRANGE', key, 0, -1)) do
      places[#places + 1], places[#places + 2] = 0, member
    end
    call_in_batches('ZADD', to, places)
    call('DEL', key)
  end
  if to == all and call('EXISTS', all) == 1 then call('RENAME', all, ready) end
  for id in string.gmatch(queue.sorted, '%S+') do
    call('UNLINK', K.sorted(queue.name, id))
    call('HDEL', K.filters(queue.name), 'place ' .. id)
  end
  return true
end

local function judge_anew(queue, plan)
  if not empty_places(queue) then return end
  call('HDEL', K.filters(queue.name), F.resort)
  plan.trees.resort, plan.places = nil, {}
end
