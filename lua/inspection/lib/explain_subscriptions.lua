--- explain_subscriptions: what a queue's head is, who could get a message, who holds others; at most a hundred of each are named.
--- @include explain_facts, lease_runs

-- The first message that another instance delivers; nil when there is none.
local function first_remote(look)
  return look.queue.owner and call('ZRANGE', K.remote(look.queue.name), 0, 0)[1] or look.remote
end

-- The message that is to be delivered next; where only other instances have something to deliver, theirs; nil when nothing waits.
local function next_ref(look)
  local queue, first = look.queue, call('ZRANGE', K.ready(look.queue.name), 0, 0)[1]
  if not queue.sorted then return first or first_unread(look) or first_remote(look) end
  local going = queue.concurrency and not first and call('ZRANGE', K.going(queue.name), 0, 0)[1]
  if going == V.anchor and queue.affinity then
    local id = call('ZRANGE', K.lines(queue.name), 0, 0)[1]
    going = id and (call('ZRANGE', K.going_of(queue.name, id), 0, 0)[1] or call('ZRANGE', K.going_of(queue.name, id .. '+'), 0, 0)[1]) or going
  end
  if going and going ~= V.anchor then return string.match(going, '^%S+') end
  local barrier = call('ZRANGE', K.held(queue.name), 0, 0)[1]
  if barrier and first and barrier < first then first = nil end
  local placed = call('ZRANGE', K.sorted(queue.name, V.none), 0, 0)[1]
  if placed and (not first or look.plan.trees.priority or ref_of_member(placed) < ref_of_member(first)) then
    first = placed
  end
  return first and ref_of_member(first) or barrier or first_unread(look) or first_remote(look)
end

local function filter_verdict(look, filter, document)
  if filter == V.none then return 1 end
  return document and look.plan.trees[filter] and judge(look.plan, filter, document) and 1 or 0
end

-- A row each: id, leased, max, how many queues it has, 1 if silent, 1 if its filter matches, filter, client. max: of one with a bell what it
-- asked for, and `b`.
local function add_subscription_facts(look, document)
  local members = K.members(look.queue.name)
  local ids = call('SCARD', members) <= 100 and call('SMEMBERS', members) or call('SSCAN', members, 0, 'COUNT', 100)[2]
  local verdicts = {}
  table.sort(ids)
  for i = 1, math.min(#ids, 100) do
    local row = call('HMGET', K.subscription(ids[i]), F.leased, F.max, F.filter, F.client, F.queues, F.bell, F.asked)
    local filter = row[3] or V.none
    verdicts[filter] = verdicts[filter] or filter_verdict(look, filter, document)
    local beat = tonumber(call('ZSCORE', K.subscriptions(), ids[i]) or 0)
    if row[1] then
      local max = row[6] and row[7] .. 'b' or row[2]
      add_fact(look, 'subscription', table.concat({ids[i], row[1], max, select(2, string.gsub(row[5], '%S+', '')),
        beat < look.ms and 1 or 0, verdicts[filter], filter, row[4]}, ' '))
    end
  end
end

-- A row each: filter, 1 if it matches, how many of its subscriptions are free, 1 while its index is being built, how
-- many messages come before this one there or -1, tree.
local function add_filter_facts(look, ref, document)
  local queue, plan = look.queue, look.plan
  for _, filter in ipairs({V.none, unpack(plan.filters)}) do
    local rank = queue.sorted and call('ZRANK', K.sorted(queue.name, filter), member_of(queue, ref))
    local row = {filter, filter_verdict(look, filter, document), call('ZCARD', K.free(queue.name, filter)),
      plan.places[filter] and 1 or 0, rank or -1, plan.trees[filter] or ''}
    add_fact(look, 'filter', table.concat(row, ' '))
  end
end

-- A row each: subscription, how many of the first hundred leases it holds, client.
local function add_holder_facts(look)
  local counts, seen = {}, call('HSCAN', K.leases(look.queue.name), 0, 'COUNT', 100)[2]
  for i = 1, math.min(#seen, 202), 2 do
    local lease = seen[i] ~= V.anchor and parse_lease(seen[i + 1])
    if lease then counts[lease.holder] = (counts[lease.holder] or 0) + 1 end
  end
  for i = 2, #(look.queue.pushed or {}), 2 do
    local holder = parse_lease(look.queue.pushed[i]).holder
    counts[holder] = (counts[holder] or 0) + 1
  end
  for _, run in ipairs(look.queue.in_runs and runs_behind(look.queue.name, '', 100) or {}) do
    counts[run.holder] = (counts[run.holder] or 0) + #leases_in_run(look.queue.name, run) / 2
  end
  for id, count in pairs(counts) do
    add_fact(look, 'holder', id .. ' ' .. count .. ' ' .. (call('HGET', K.subscription(id), F.client) or ''))
  end
end
