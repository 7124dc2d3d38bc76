--- queue_sorting: what a queue's own expressions make of it: sorted, plain again, or to be judged anew.
--- @include filter_indexes, ref

-- Something that waits has its place by a priority.
local function has_scores(name)
  local key = K.sorted(name, V.none)
  return call('ZCOUNT', key, '-inf', '(0') + call('ZCOUNT', key, '(0', '+inf') > 0
end

-- By another life everything is to be looked at anew.
local function define_policy(name, policy)
  if policy == '' then
    call('HDEL', K.queue(name), F.policy)
  else
    call('HSET', K.queue(name), F.policy, policy)
  end
  loaded_queues[name] = nil
end

-- size: '' of a queue that is no ring. What waits in it when it becomes one has entered before: it stays, until as many have
-- left. A plain queue's order is that of a ring already.
local function define_ring(name, size, is_new)
  if size == '' then
    call('HDEL', K.filters(name), F.ring)
    return
  end
  local former = call('HGET', K.filters(name), F.ring)
  local from = former and string.match(former, '^%d+( .*)$') or ''
  -- Behind every ref of that order, whatever its topic.
  if not former and not is_new then from = ' ' .. order_of(call('GET', K.clock()) or '0-0') .. '~' end
  call('HSET', K.filters(name), F.ring, size .. from)
  local is_sorted = load_queue(name).sorted
  if not is_sorted and call('EXISTS', K.ready(name)) == 1 then call('RENAME', K.ready(name), K.sorted(name, V.none)) end
end

-- A queue that had priorities stays sorted for a while: the scores of what waits mean nothing to a plain one.
local function define_sorting(name, entry, priority, barrier, life_changed)
  local former = call('HMGET', K.filters(name), F.entry, F.priority, F.barrier)
  local queue = load_queue(name)
  for field, tree in pairs({[F.entry] = entry, [F.priority] = priority, [F.barrier] = barrier}) do
    if tree ~= '' then
      call('HSET', K.filters(name), field, tree)
    else
      call('HDEL', K.filters(name), field)
    end
  end
  local ring = call('HEXISTS', K.filters(name), F.ring) == 1
  if entry .. priority .. barrier ~= '' or ring or queue.concurrency or former[2] or has_scores(name) then
    call('HSET', K.filters(name), F.kept, 1)
    if not queue.sorted then save_filter_names(queue, V.none) end
  else
    call('HDEL', K.filters(name), F.kept)
  end
  if not queue.sorted then return end
  if (former[2] or '') ~= priority or (former[3] or '') ~= barrier or priority ~= '' and life_changed then
    if not reset_places(queue) then call('HSET', K.filters(name), F.resort, 1) end
  end
  end_sorting(load_queue(name))
end
