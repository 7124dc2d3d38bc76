--- end_wait: let a subscription's blocked read return at once: its client wants to change it, or to end it.
--- ARGV subscription_id
--- GIVES 1; 0: there is no such subscription
--- FLAGS allow-oom
--- @include fail
-- The element that is pushed for that is no message: no queue can have its name, so whoever takes it out of the inbox finds
-- no lease, and drops it.
if call('EXISTS', K.subscription(subscription_id)) == 0 then return 0 end
call('RPUSH', K.inbox(subscription_id), V.end_of_wait, '')
return 1
