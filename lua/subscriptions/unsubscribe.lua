--- unsubscribe: end a subscription; what it held goes back to its queues.
--- ARGV now, subscription_id, held...
--- GIVES 1 while part of its inbox is left (call again), else 0
--- FLAGS allow-oom
--- @include clock, fail, membership, settlement_groups, settlement, plain_dispatch, inbox, action_events, bound_release(), timetable
-- held: groups of queue, number, refs, tokens that nobody began to process. Those and what is still in the inbox count as
-- never delivered; the rest is found by a lease pass, which is due at once. The first call ends it, whatever follows.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
local freed, groups, at = {}, {}, held_from
local left, client = unpack(call('HMGET', K.subscription(subscription_id), F.left, F.client))
while subscription and at < #ARGV do
  local queue, refs, tokens, after = read_group(at)
  groups[#groups + 1] = {queue = queue, refs = refs, tokens = tokens}
  at = after
end
if subscription then
  if has_listeners() then
    local asked, tree, client = unpack(call('HMGET', K.subscription(subscription_id), F.asked, F.tree, F.client))
    emit_subscription_event('unsubscribe', client, subscription.queues, call('HGET', K.patterns(), subscription_id), asked, tree)
  end
  call('DEL', K.subscription(subscription_id), K.bell(subscription_id))
  call('HDEL', K.patterns(), subscription_id)
  call('ZREM', K.subscriptions(), subscription_id)
  call('DEL', K.barriers(subscription_id))
  leave_all_queues(subscription, ms)
  for _, group in ipairs(groups) do
    if group.queue then settle_messages(group.queue, ms, V.given_back, 0, group.refs, group.tokens, subscription_id, freed) end
  end
end
local queues = give_back_inbox(subscription_id, ms, freed, V.returned)
if subscription and subscription.leased > (freed[subscription_id] or 0) then
  -- What comes back from it is told of with its client's name.
  call('HSET', K.departed(), subscription_id, client or '')
  add_due(ms + 3600000, 'departed ' .. subscription_id)
  for name in string.gmatch(subscription.queues .. ' ' .. (left or ''), '%S+') do
    call('HDEL', K.queue(name), F.passing)
    add_due(ms, 'leases ' .. name)
  end
end
-- Also of queues that it has left, where it held something.
local served = subscription and subscription.queues .. ' ' .. (left or '') or table.concat(queues, ' ')
for name in string.gmatch(served, '%S+') do
  if load_queue(name).affinity then bound_release().release_line(load_queue(name), subscription_id) end
  dispatch_soon(name, ms)
end
return call('EXISTS', K.inbox(subscription_id))
