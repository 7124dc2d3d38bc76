--- single_publish: record one message that is nothing but a body, and push it where somebody waits for it: what most publishes are.
--- @include entry_ids, free_subscriptions, log_front, handover, leases, delivery_element, dispatch

-- Whether whoever is free gets what comes, in a queue with one topic: then all is known but the message's place.
local function gives_at_once(queue, topic)
  return queue.topic == topic and queue.depth == 0 and queue.turn == 0
    and not (queue.sorted or queue.recovering or queue.fated or queue.once or queue.watched or queue.recorded or queue.rate)
end

-- Who is to get the next message of a topic, and the log's front, of which all is read. Before anything is written: nil where that is
-- for `dispatch_plain` to find out, since something is not as it mostly is; false where nobody is free.
local function next_receiver(queue, topic)
  if not gives_at_once(queue, topic) then return nil end
  local id = call('ZRANGE', K.free(queue.name, V.none), '0', '0')[1]
  if not id then return false end
  local subscription = load_subscription(id)
  if not subscription or subscription.leased >= subscription.max or deliveries_left(queue) <= 0 then return nil end
  if call('EXISTS', K.ready(queue.name), K.ahead(queue.name)) > 0 then return nil end
  local front = open_front(queue, topic, 0)
  if front.entries[1] then return nil end
  return subscription, front
end

-- What `dispatch_plain` does for a message that was recorded under this ID now, for whom `next_receiver` has found.
local function push_to_receiver(queue, subscription, front, id, body, now)
  front.id, front.count, front.read = id, front.count + 1, true
  save_cursor(queue, front)
  count_deliveries(queue, token_before(queue, now), 1)
  local ref, deadline = ref_of(front.topic, id), deadline_of(queue, now)
  local lease = {token = queue.token, holder = subscription.id, delivery = '1'}
  write_leases(queue, now, {ref, lease_value(lease, deadline, queue.lease)}, {ref})
  subscription.leased = subscription.leased + 1
  save_subscription(subscription)
  call('RPUSH', K.inbox(subscription.id), pushed_element(queue, queue.token, '1', deadline, ref, {F.body, body}))
end

-- route: the topic's, of one queue without a mark. Returns the ID.
local function publish_single(topic, queue_name, body, now)
  local queue, log = load_queue(queue_name), K.log(topic)
  local subscription, front = next_receiver(queue, topic)
  local function add(run, id) return run('XADD', log, id, F.body, body) end
  local id = record_entries(log, now, 0, 0, add, front and front.count + 1)
  if subscription then
    push_to_receiver(queue, subscription, front, id, body, now)
  elseif subscription == nil then
    dispatch_or_defer(queue_name, now, 1)
  end
  return id
end
