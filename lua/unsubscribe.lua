--- unsubscribe: end a subscription; what it held goes back to its queues.
--- ARGV now, subscription_id, held...
--- GIVES 1 while part of its inbox is left (call again), else 0
--- FLAGS allow-oom
--- @include clock, fail, groups, settle, dispatch, inbox
-- held: groups of queue, number, refs, tokens that nobody began to process. Those and what is still in
-- the inbox count as never delivered; the rest is found by a lease pass, which is due at once.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then return 0 end
for name in string.gmatch(subscription.queues, '%S+') do call('ZREM', K.free(name, V.none), subscription_id) end
call('HSET', K.subscription(subscription_id), F.max, 0)
local freed, at = {}, held_from
while at < #ARGV do
  local queue, refs, tokens, after = read_group(at)
  at = after
  if queue then settle(queue, ms, V.given_back, 0, refs, tokens, subscription_id, freed) end
end
give_back_inbox(subscription_id, ms, freed)
local left = subscription.leased - (freed[subscription_id] or 0)
call('HSET', K.subscription(subscription_id), F.leased, left)
local more = call('EXISTS', K.inbox(subscription_id))
if more == 0 then
  call('DEL', K.subscription(subscription_id))
  call('HDEL', K.patterns(), subscription_id)
  call('ZREM', K.subscriptions(), subscription_id)
end
for name in string.gmatch(subscription.queues, '%S+') do
  if more == 0 then
    call('SREM', K.members(name), subscription_id)
    if left > 0 then
      call('HDEL', K.queue(name), F.passing)
      call('ZADD', K.due(), ms, 'leases ' .. name)
    end
  end
  dispatch_or_defer(name, ms, V.batch)
end
return more
