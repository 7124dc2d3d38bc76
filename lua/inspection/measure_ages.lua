--- measure_ages: since when the oldest messages of a queue are there: what may be delivered, what is leased, and the oldest lease.
--- ARGV now, queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES {ms now; ms of the oldest message that may be delivered; of the oldest leased one; since when the oldest lease is: each '' where there is none; told of and not here; 1 if proxied else 0; `total` of K.latencies(), '' where nothing was measured}
--- FLAGS no-writes, allow-oom
--- @include clock, fail, explain_subscriptions, lease_runs
-- Bounded: of a queue with priorities the next hundred are looked at, and the oldest of the least priority, which waits longest;
-- of more than a thousand leases, a thousand by chance; of runs of leases the first hundred.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end

local function older(found, ref)
  return (not found or ref < found) and ref or found
end

local function ms_of(ref)
  return ref and string.match(ref, '^%l(%d+)') or ''
end

local function oldest_deliverable(look)
  local first = next_ref(look)
  if first and (first == look.remote or queue.owner and call('ZSCORE', K.remote(queue_name), first)) then return nil end
  if not first or not look.plan or not look.plan.trees.priority then return first end
  local placed, found = K.sorted(queue_name, V.none), first
  for _, member in ipairs(call('ZRANGE', placed, 0, 99)) do found = older(found, ref_of_member(member)) end
  local last = call('ZRANGE', placed, -1, -1, 'WITHSCORES')
  local least = last[2] and call('ZRANGE', placed, last[2], last[2], 'BYSCORE', 'LIMIT', 0, 1)[1]
  if least then found = older(found, ref_of_member(least)) end
  return found
end

-- The message and the lease; of a lease that never lapses nobody wrote down since when it is.
local function oldest_leased()
  local is_few = call('HLEN', K.leases(queue_name)) <= 1001
  local found = is_few and call('HGETALL', K.leases(queue_name)) or call('HRANDFIELD', K.leases(queue_name), 1000, 'WITHVALUES')
  for _, text in ipairs(queue.pushed or {}) do found[#found + 1] = text end
  local message, since
  for i = 1, #found, 2 do
    if found[i] ~= V.anchor then
      local lease = parse_lease(found[i + 1])
      message = older(message, found[i])
      local begun = lease.deadline > 0 and lease.deadline - lease.length
      if begun and (not since or begun < since) then since = begun end
    end
  end
  local runs = queue.in_runs and runs_behind(queue_name, '', 100) or {}
  -- Behind scattered ones, which have their messages in any order, those of each topic stand in its order.
  local ordered = queue.in_runs and runs_behind(queue_name, '!', 1)[1]
  if ordered then message = older(message, leases_in_run(queue_name, ordered)[1]) end
  for _, run in ipairs(runs) do
    local leased = run.scattered and leases_in_run(queue_name, run) or {}
    for i = 1, #leased, 2 do message = older(message, leased[i]) end
    local begun = run.deadline > 0 and run.deadline - run.length
    if begun and (not since or begun < since) then since = begun end
  end
  return ms_of(message), since and string.format('%.0f', since) or ''
end

local message, since = oldest_leased()
local deferred = 0
for _, topic in ipairs(call('HKEYS', K.cursors(queue_name))) do deferred = deferred + call('HLEN', K.deferred(topic)) end
return {
  string.format('%.0f', ms), ms_of(oldest_deliverable(open_look(queue, ms))), message, since, deferred,
  call('HGET', K.queue(queue_name), F.proxied) == '1' and 1 or 0, call('HGET', K.latencies(queue_name), 'total') or '',
}
