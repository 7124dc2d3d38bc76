--- replace_subscription: another filter, backlog or other queues for a subscription; its leases stay, even above the new limit.
--- ARGV now, version, subscription_id, number, asked, filter, tree, pattern, queues...
--- FAIL UNKNOWN_SUBSCRIPTION, CATALOG_CHANGED, UNKNOWN_QUEUE, TOO_MANY_FILTERS, BINARY_MESSAGES, GROUPED_QUEUE
--- GIVES {effective max_backlog, 1 while part of its inbox is left (call again) else 0, queue, last token, ...}
--- FLAGS allow-oom
--- @include clock, fail, catalog, membership, settlement, judging_plan, dispatch, inbox(), bound_release(), timetable
-- number: of the subscription's wish; one that comes late, after a newer one, changes nothing. What is still in the inbox
-- goes back uncounted. Tokens: what its client finds with these or lower ones was delivered under a former wish.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id}) end
if version ~= '' then check_catalog(version) end
local queues = {unpack(ARGV, queues_from)}
check_queues(filter, queues, subscription)
local former, freed, tokens = subscription.queues, {}, {}
local known = call('HGET', K.subscription(subscription_id), F.left) or ''
for name in string.gmatch(former .. known .. ' ' .. table.concat(queues, ' '), '%S+') do
  tokens[name] = call('HGET', K.queue(name), F.token) or '0'
end

local inbox_part = inbox()

-- A barrier that was sent stays sent, if the new wish has it.
local function still_wanted(element)
  local names = ' ' .. table.concat(queues, ' ') .. ' '
  if not inbox_part.is_barrier_element(element) or not string.find(names, ' ' .. element.queue .. ' ', 1, true) then return false end
  local topic, id = parse_ref(element.ref)
  local entry = filter ~= V.none and call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return filter == V.none end
  local plan = load_plan(load_queue(element.queue))
  return judge(plan, filter, document_of(plan, element.ref, entry[2], 0, ms))
end

local function save_wish()
  leave_all_queues(subscription, ms)
  call('HSET', K.subscription(subscription_id), F.queues, '', F.asked, asked, F.wish, number)
  call('HDEL', K.subscription(subscription_id), F.filter, F.tree)
  if filter ~= V.none then call('HSET', K.subscription(subscription_id), F.filter, filter, F.tree, tree) end
  subscription.filter = filter
  for _, name in ipairs(queues) do join_queue(subscription_id, name) end
  local patterned = call('HDEL', K.patterns(), subscription_id)
  if pattern ~= '' then call('HSET', K.patterns(), subscription_id, pattern) end
  if pattern ~= '' or patterned == 1 then change_catalog() end
end

-- After a doubt only barriers that are still wanted are pushed again.
local function keep_barriers()
  local kept = {}
  for _, text in ipairs(call('LRANGE', K.barriers(subscription_id), 0, -1)) do
    local queue, ref = string.match(text, '^(%S+) %d+ (.*)$')
    if still_wanted({queue = queue, ref = ref, delivery = '0'}) then kept[#kept + 1] = text end
  end
  call('DEL', K.barriers(subscription_id))
  if #kept > 0 then call('RPUSH', K.barriers(subscription_id), unpack(kept)) end
end

-- What waits for it in queues that it has left waits for nobody.
local function release_lines()
  local names = ' ' .. table.concat(queues, ' ') .. ' '
  for name in string.gmatch(former, '%S+') do
    local queue = load_queue(name)
    if queue.affinity and not string.find(names, ' ' .. name .. ' ', 1, true) then bound_release().release_line(queue, subscription_id) end
  end
end

-- Looks at a part of what was in the inbox when the wish came, and at each element once, whatever stays. Returns 1 while there is more, else 0.
local function give_back_part(unseen)
  local _, seen = inbox_part.give_back_inbox(subscription_id, ms, freed, unseen, still_wanted)
  -- Less than was there: somebody has picked it up meanwhile.
  local left = seen == V.returned and unseen - seen or 0
  if left > 0 then
    call('HSET', K.subscription(subscription_id), F.unseen, string.format('%d', left))
  else
    call('HDEL', K.subscription(subscription_id), F.unseen)
  end
  return left > 0 and 1 or 0
end

local latest, unseen = unpack(call('HMGET', K.subscription(subscription_id), F.wish, F.unseen))
latest, unseen = tonumber(latest or 0), tonumber(unseen or 0)
if tonumber(number) < latest then return {subscription.max, 0} end
if tonumber(number) > latest then
  save_wish()
  keep_barriers()
  release_lines()
  unseen = call('LLEN', K.inbox(subscription_id)) / 2
end
local left = give_back_part(unseen)
subscription.leased = subscription.leased - (freed[subscription_id] or 0)
save_leased(subscription)
if subscription.leased > 0 then
  for name in string.gmatch(former, '%S+') do
    if not string.find(' ' .. known .. ' ', ' ' .. name .. ' ', 1, true) then known = known .. ' ' .. name end
  end
  call('HSET', K.subscription(subscription_id), F.left, known)
end
local max = refresh_subscription(subscription_id)
for name in string.gmatch(former .. ' ' .. table.concat(queues, ' '), '%S+') do
  -- Nothing new before the rest of what was pushed is gone.
  if left == 1 then add_due(ms, 'dispatch ' .. name, 'NX') else dispatch_or_defer(name, ms, V.batch) end
end
local out = {max, left}
for name, token in pairs(tokens) do
  out[#out + 1] = name
  out[#out + 1] = token
end
return out
