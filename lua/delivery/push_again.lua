--- push_again: after a lost reply, push again what a subscription is leased and does not hold.
--- ARGV now, subscription_id, queue_name, cursor, tokens...
--- FAIL UNKNOWN_SUBSCRIPTION, UNKNOWN_QUEUE
--- GIVES the cursor of the next step, '0' after the last
--- FLAGS allow-oom
--- @include clock, fail, inbox, lease_runs
-- tokens: what the client holds of this queue. Same token, same delivery, same deadline: nothing is counted. What was leased in a run gets a
-- lease of its own: nothing of a run is ever in an inbox.
if call('EXISTS', K.subscription(subscription_id)) == 0 then
  fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id})
end
if not load_queue(queue_name) then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local held = {}
for i = tokens_from, #ARGV do held[ARGV[i]] = true end
local inbox = call('LRANGE', K.inbox(subscription_id), 0, -1)
for i = 1, #inbox, 2 do
  local element = parse_element_head(inbox[i])
  if element.queue == queue_name then held[element.token] = true end
end
-- What is leased in runs comes behind all other leases: cursor is `run`, and the one behind which it goes on.
local function next_leases()
  local behind = string.match(cursor, '^run ?(.*)$')
  if not behind then
    local scanned = call('HSCAN', K.leases(queue_name), cursor, 'COUNT', V.batch)
    return scanned[1] == '0' and load_queue(queue_name).in_runs and 'run' or scanned[1], scanned[2]
  end
  local runs, values = runs_behind(queue_name, behind, V.batch), {}
  for i, run in ipairs(runs) do
    if run.holder == subscription_id then
      for _, text in ipairs(leases_in_run(queue_name, run)) do values[#values + 1] = text end
    end
    if #values >= 2 * V.batch or i == V.batch then return 'run ' .. run.member, values end
  end
  return '0', values
end

local following, values = next_leases()
local lost, refs, leases = {}, {}, {}
for i = 1, #values, 2 do
  local ref, lease = values[i], values[i] ~= V.anchor and parse_lease(values[i + 1])
  if lease and lease.holder == subscription_id and not held[lease.token] then
    lost[#lost + 1] = {ref = ref, lease = lease}
    refs[#refs + 1], leases[#leases + 1], leases[#leases + 2] = ref, ref, values[i + 1]
  end
end
if leave_runs(load_queue(queue_name), refs) > 0 then call_in_batches('HSET', K.leases(queue_name), leases) end
for _, text in ipairs(cursor == '0' and call('LRANGE', K.barriers(subscription_id), 0, -1) or {}) do
  local queue, token, ref = string.match(text, '^(%S+) (%d+) (.*)$')
  if queue == queue_name and not held[token] then
    lost[#lost + 1] = {ref = ref, lease = {token = token, delivery = '0', deadline = '0'}}
  end
end
table.sort(lost, function(a, b) return a.ref < b.ref end)
for _, item in ipairs(lost) do
  call('RPUSH', K.inbox(subscription_id), queue_name .. ' ' .. item.lease.token .. ' ' .. item.lease.delivery .. ' '
    .. item.lease.deadline .. ' r ' .. item.ref, '')
end
-- See uncollected_leases.lua.
if #lost > 0 then
  call('HSET', K.subscription(subscription_id), 'again ' .. queue_name, call('HGET', K.queue(queue_name), F.token) or 0)
end
return following
