--- replace: another filter, backlog or other queues for a subscription; its leases stay, even above the new limit.
--- ARGV now, version, subscription_id, asked, filter, tree, pattern, queues...
--- FAIL UNKNOWN_SUBSCRIPTION, CATALOG_CHANGED, UNKNOWN_QUEUE, TOO_MANY_FILTERS
--- GIVES {effective max_backlog, 1 while part of its inbox is left (call again) else 0}
--- FLAGS allow-oom
--- @include clock, fail, catalog, membership, settle, plan, dispatch, inbox
-- What is still in the inbox goes back uncounted, so that from here on only what the new wish wants is delivered.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id}) end
if version ~= '' then check_catalog(version) end
local queues = {unpack(ARGV, queues_from)}
check_queues(filter, queues, subscription.filter)
local former, freed = subscription.queues, {}

-- A barrier that was sent stays sent, if the new wish has it.
local function still_wanted(element)
  local names = ' ' .. table.concat(queues, ' ') .. ' '
  if not is_barrier(element) or not string.find(names, ' ' .. element.queue .. ' ', 1, true) then return false end
  local topic, id = parse_ref(element.ref)
  local entry = filter ~= V.none and call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return filter == V.none end
  local plan = load_plan(load_queue(element.queue))
  return judge(plan, filter, document_of(plan, element.ref, entry[2], 0, ms))
end

leave_all(subscription, ms)
call('HSET', K.subscription(subscription_id), F.queues, '', F.asked, asked)
call('HDEL', K.subscription(subscription_id), F.filter, F.tree)
if filter ~= V.none then call('HSET', K.subscription(subscription_id), F.filter, filter, F.tree, tree) end
subscription.filter = filter
for _, name in ipairs(queues) do join(subscription_id, name) end
local patterned = call('HDEL', K.patterns(), subscription_id)
if pattern ~= '' then call('HSET', K.patterns(), subscription_id, pattern) end
if pattern ~= '' or patterned == 1 then change_catalog() end
local _, left = give_back_inbox(subscription_id, ms, freed, still_wanted)
subscription.leased = subscription.leased - (freed[subscription_id] or 0)
call('HSET', K.subscription(subscription_id), F.leased, subscription.leased)
if subscription.leased > 0 then
  local known = call('HGET', K.subscription(subscription_id), F.left) or ''
  for name in string.gmatch(former, '%S+') do
    if not string.find(' ' .. known .. ' ', ' ' .. name .. ' ', 1, true) then known = known .. ' ' .. name end
  end
  call('HSET', K.subscription(subscription_id), F.left, known)
end
local max = refresh(subscription_id)
for name in string.gmatch(former .. ' ' .. table.concat(queues, ' '), '%S+') do
  -- Nothing new before the rest of what was pushed is gone.
  if left == 1 then call('ZADD', K.due(), 'NX', ms, 'dispatch ' .. name) else dispatch_or_defer(name, ms, V.batch) end
end
return {max, left}
