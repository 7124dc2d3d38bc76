--- definition: what a queue's own expressions make of it: sorted, plain again, or to be judged anew.
--- @include filters

-- Something that waits has its place by a priority.
local function has_scores(name)
  local key = K.sorted(name, V.none)
  return call('ZCOUNT', key, '-inf', '(0') + call('ZCOUNT', key, '(0', '+inf') > 0
end

-- A queue that had priorities stays sorted for a while: the scores of what waits mean nothing to a plain one.
local function define_sorting(name, entry, priority, barrier)
  local former = call('HMGET', K.filters(name), F.entry, F.priority, F.barrier)
  local queue = load_queue(name)
  for field, tree in pairs({[F.entry] = entry, [F.priority] = priority, [F.barrier] = barrier}) do
    if tree ~= '' then
      call('HSET', K.filters(name), field, tree)
    else
      call('HDEL', K.filters(name), field)
    end
  end
  if entry .. priority .. barrier ~= '' or former[2] or has_scores(name) then
    call('HSET', K.filters(name), F.kept, 1)
    if not queue.sorted then save_sorted(queue, V.none) end
  else
    call('HDEL', K.filters(name), F.kept)
  end
  if not queue.sorted then return end
  if (former[2] or '') ~= priority or (former[3] or '') ~= barrier then
    if not empty_places(queue) then call('HSET', K.filters(name), F.resort, 1) end
  end
  end_sorting(load_queue(name))
end
