--- check_lease_count: whether a subscription's number of leases is that of the leases that it holds.
--- ARGV subscription_id, repair
--- GIVES {number noted, or -1: it does not exist; number counted, or -1: too many leases to count at once}
--- FLAGS allow-oom
--- @include fail, subscription, timetable, lease_runs
local subscription = load_subscription(subscription_id)
if not subscription then return {-1, -1} end
local left, total, counted = call('HGET', K.subscription(subscription_id), F.left) or '', 0, 0
local names = {}
for name in string.gmatch(subscription.queues .. ' ' .. left, '%S+') do
  if not names[name] then total = total + number_leased(name) end
  names[name] = true
end
if total > 5000 then return {subscription.leased, -1} end
for name in pairs(names) do
  for _, lease in ipairs(call('HVALS', K.leases(name))) do
    if string.match(lease, '^%d+ (%S+)') == subscription_id then counted = counted + 1 end
  end
  for _, run in ipairs(runs_behind(name, '', 5000)) do
    if run.holder == subscription_id then counted = counted + #leases_in_run(name, run) / 2 end
  end
end
if counted ~= subscription.leased and repair == '1' then
  local noted = subscription.leased
  subscription.leased = counted
  save_subscription(subscription)
  for name in string.gmatch(subscription.queues, '%S+') do
    add_due(0, 'dispatch ' .. name, 'NX')
  end
  return {noted, counted}
end
return {subscription.leased, counted}
