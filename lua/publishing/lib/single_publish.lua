--- single_publish: record one message that is nothing but a body, and push it where somebody waits for it: what most publishes are.
--- @include entry_ids, log_front, handover, leases, delivery_element, dispatch, open_run_pushes

-- Whether whoever is free gets what comes, in a queue with one topic: then all is known but the message's place.
local function gives_at_once(queue, topic)
  return queue.topic == topic and queue.depth == 0 and queue.turn == 0
    and not (queue.sorted or queue.recovering or queue.fated or queue.once or queue.watched or queue.recorded or queue.rate)
end

-- Who is to get the next message of a topic, and the log's front, of which all is read. Before anything is written: nil where that is
-- for `dispatch_plain` to find out, since something is not as it mostly is. id: the best free subscription.
local function next_receiver(queue, topic, id)
  if not gives_at_once(queue, topic) then return nil end
  local subscription = load_subscription(id)
  if not subscription or subscription.leased >= subscription.max or deliveries_left(queue) <= 0 then return nil end
  if call('EXISTS', K.ready(queue.name), K.ahead(queue.name)) > 0 then return nil end
  local front = open_front(queue, topic, 0)
  if front.entries[1] then return nil end
  return subscription, front
end

-- What `dispatch_plain` does for a message that was recorded under this ID now, for whom `next_receiver` has found. Returns whether a run was begun.
local function push_to_receiver(queue, subscription, front, id, body, now, is_only_free)
  front.id, front.count, front.read = id, front.count + 1, true
  save_cursor(queue, front)
  local before = token_before(queue, now)
  local ref, deadline, is_open = ref_of(front.topic, id), deadline_of(queue, now), may_open_run(queue, subscription, is_only_free)
  if is_open then begin_open_run(queue, subscription, subscription.leased, front, ref, before + 1, deadline) end
  count_deliveries(queue, before, 1)
  if is_open then
    if queue.lease > 0 then add_due(deadline, 'leases ' .. queue.name, 'LT') end
  else
    local lease = {token = queue.token, holder = subscription.id, delivery = '1'}
    write_leases(queue, now, {ref, lease_value(lease, deadline, queue.lease)}, {ref})
  end
  subscription.leased = subscription.leased + 1
  save_subscription(subscription)
  call('RPUSH', K.inbox(subscription.id), pushed_element(queue, queue.token, '1', deadline, ref, {F.body, body}))
  return is_open
end

-- queue_name: of the topic's route, which is one queue without a mark. catalog, hint: as `push_by_hint` has them. Returns the ID.
local function publish_single(topic, queue_name, catalog, hint, body, now)
  local free, log = call('ZRANGE', K.free(queue_name, V.none), 0, 1), K.log(topic)
  local is_only_free, begins = free[1] and not free[2], false
  local function add(run, new) return run('XADD', log, new, F.body, body) end
  local queue, subscription, front = (free[1] or call('EXISTS', K.filters(queue_name)) == 1) and load_queue(queue_name), nil, nil
  if free[1] then subscription, front = next_receiver(queue, topic, free[1]) end
  local id = record_entries(log, now, 0, 0, add, front and front.count + 1)
  if subscription then
    begins = push_to_receiver(queue, subscription, front, id, body, now, is_only_free)
  elseif queue then
    dispatch_or_defer(queue_name, now, 1)
  end
  -- Else no subscription is free, and the queue has no filters, priority or ring: a dispatch would give nothing and place nothing.
  if begins or hint then keep_hint(topic, queue_name, catalog, hint, begins) end
  return id
end
