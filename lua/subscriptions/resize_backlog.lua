--- resize_backlog: change the backlog that a subscription asks for; leases stay, even above the new limit.
--- ARGV now, subscription_id, asked
--- FAIL UNKNOWN_SUBSCRIPTION
--- GIVES the effective max_backlog
--- FLAGS allow-oom
--- @include clock, fail, membership, plain_dispatch
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id}) end
call('HSET', K.subscription(subscription_id), F.asked, asked)
local max = refresh_subscription(subscription_id)
for name in string.gmatch(subscription.queues, '%S+') do dispatch_soon(name, ms) end
return max
