--- lease_return: leased messages that go back to their queue: at once, later, or, where a limit is reached, for the last time.
--- @include leases, group_state(), message_life, ref, recorded_deliveries, return_history, timetable, rates(), batch_return()

-- ms when its life is over at the earliest; nil: never, or its own life says. Its definition may have changed since it was
-- delivered, so the entry is read again where it may be over already: then the time is exact.
local function earliest_end(queue, ref, lease, now)
  if queue.life == 0 and not lease.ends then return nil end
  local by_arrival = queue.life > 0 and string.match(ref, '^%l(%d+)') + queue.life or nil
  local earliest = math.min(by_arrival or math.huge, lease.ends or math.huge)
  if earliest > now then return by_arrival and earliest end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return nil end
  local own, due = delivery_options_of(entry[2])
  return end_of_life(queue, ref, own, due)
end

-- A lease that nobody began to process counts for nothing; a life that is over ends all the same.
local function limits_reached(queue, lease, cancels, counted, is_over)
  if not is_over and not (counted and (queue.cancels > 0 or queue.deliveries > 0)) then return '' end
  local reasons = {}
  if counted and queue.cancels > 0 and cancels >= queue.cancels then reasons[1] = V.max_cancels end
  if counted and queue.deliveries > 0 and lease.delivery >= queue.deliveries then
    reasons[#reasons + 1] = V.max_deliveries
  end
  if is_over then reasons[#reasons + 1] = V.time_limit end
  return table.concat(reasons, ',')
end

-- ms that it waits. What is random in it follows from the message, so that a test and a second run see the same.
local function redelivery_delay(queue, ref, delivery)
  if queue.redelivery == 0 then return 0 end
  local delay = math.min(queue.redelivery * queue.multiplier ^ (delivery - 1), queue.longest)
  local random = tonumber(string.sub(redis.sha1hex(ref .. delivery), 1, 8), 16) / 2 ^ 31 - 1
  return math.floor(delay * (1 + queue.jitter * random))
end

-- A subscription that is gone may have left its client's name.
local function client_label(holder, clients)
  if not clients[holder] then
    local client = call('HGET', K.subscription(holder), F.client) or call('HGET', K.departed(), holder) or ''
    clients[holder] = string.gsub(client, '[^%w._/-]', '_')
  end
  return clients[holder]
end

-- due: ms, 0: at once, nil: as the queue's redelivery says.
local function sort_returned(queue, cause, ref, lease, known, now, due, found)
  local counted = cause ~= V.given_back
  local _, cancels, told = read_attempts(known)
  if cause == V.cancelled then cancels = cancels + 1 end
  if counted then
    told = add_return(told, cause, lease.holder, client_label(lease.holder, found.clients), found.consumer_reason, now, found.items)
  end
  local ends = earliest_end(queue, ref, lease, now)
  local reason = limits_reached(queue, lease, tonumber(cancels), counted, ends and ends <= now)
  if reason ~= '' then
    local batch = found.expired[reason] or {refs = {}, attempts = {}, returns = {}}
    local number = #batch.refs + 1
    found.expired[reason] = batch
    batch.refs[number], batch.attempts[number] = ref, lease.delivery .. ':' .. cancels
    batch.returns[number] = told ~= '' and told or '-'
    batch.came_back = batch.came_back or told ~= ''
    return
  end
  if counted then
    found.counts[#found.counts + 1] = ref
    found.counts[#found.counts + 1] = lease.delivery .. ' ' .. cancels .. ' ' .. cause .. ' ' .. told
  end
  if not due then
    local wait = counted and redelivery_delay(queue, ref, lease.delivery) or 0
    due = wait > 0 and now + wait or 0
  end
  local list = due > 0 and found.later or found.ready
  list[#list + 1] = due
  list[#list + 1] = due > 0 and 'ready ' .. queue.name .. ' ' .. ref or ref
  if queue.life > 0 and ends and (due == 0 or ends <= due) then
    -- The order of arrival finds what is not delayed and ends as its arrival says; the end of anything else is noted.
    if due > 0 or ends ~= string.match(ref, '^%l(%d+)') + queue.life then
      found.lives[#found.lives + 1], found.lives[#found.lives + 2] = ends, ref
    end
    found.ends = math.min(found.ends or ends, ends)
  end
end

-- Another instance may own by now what was held here: by proxied transfer, or since its publisher sent it there, too.
local function keep_own(queue, refs, leases)
  if call('EXISTS', K.owners(queue.name), K.counting()) == 0 then return refs, leases end
  local own_refs, own_leases, remote = {}, {}, {}
  for i, ref in ipairs(refs) do
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    if entry and is_remote(queue, ref, entry[2]) then
      remote[#remote + 1], remote[#remote + 2] = 0, refs[i]
    else
      own_refs[#own_refs + 1], own_leases[#own_leases + 1] = refs[i], leases[i]
    end
  end
  call_in_batches('ZADD', K.remote(queue.name), remote)
  return own_refs, own_leases
end

-- As `return_leased`, of these messages alone. is_behind: another one of their batch came back, and holds their group if it failed.
local function return_each(queue, cause, refs, leases, freed, now, due, consumer_reason, is_behind)
  if #refs == 0 then return end
  if cause == V.given_back and (queue.rate or queue.group_rate) then rates().refund_tokens(queue, leases) end
  if cause == V.lapsed and queue.affinity then group_state().unbind_lapsed(queue, leases) end
  end_leases(queue, refs, leases, freed)
  if queue.recorded then record_returned(queue, cause, refs, leases, consumer_reason) end
  -- At most once nothing comes back, but what never was handed to anybody.
  if queue.once and cause ~= V.given_back then return end
  if queue.once then write_journal(queue.name, cause, '', refs, '') end
  if queue.owner then refs, leases = keep_own(queue, refs, leases) end
  if #refs == 0 then return end
  local known = call('HMGET', K.attempts(queue.name), unpack(refs))
  local found = {counts = {}, ready = {}, later = {}, lives = {}, expired = {}, clients = {}, items = {}, consumer_reason = consumer_reason}
  for i, ref in ipairs(refs) do sort_returned(queue, cause, ref, leases[i], known[i], now, due, found) end
  if queue.concurrency and queue.on_failure ~= V.pass and not is_behind then
    group_state().note_failures(queue, refs, leases, cause ~= V.given_back, known, found.expired, now)
  end
  call_in_batches('HSET', K.attempts(queue.name), found.counts)
  call_in_batches('ZADD', K.ready(queue.name), found.ready)
  add_all_due(found.later)
  call_in_batches('ZADD', K.lives(queue.name), found.lives)
  if found.ends then add_due(found.ends, 'expiry ' .. queue.name, 'LT') end
  if #found.later > 0 then call('HINCRBY', K.queue(queue.name), F.delayed, #found.later / 2) end
  call('HINCRBY', K.queue(queue.name), F.returned, #refs)
  notify_watchers(queue, refs)
  for reason, batch in pairs(found.expired) do
    write_journal(queue.name, V.expired, reason, batch.refs, '', batch.attempts, batch.came_back and batch.returns)
    call_in_batches('HDEL', K.attempts(queue.name), batch.refs)
  end
end

-- cause: cancelled, lapsed, disconnected or given_back (which counts for nothing). consumer_reason: what its holder says, nil for nothing.
-- What is leased behind them in the batches of their groups comes back, too.
local function return_leased(queue, cause, refs, leases, freed, now, due, consumer_reason)
  if #refs == 0 then return end
  if queue.concurrency and group_state().has_batches(queue) then
    local counted, behind = batch_return().sort_by_batches(queue, refs, leases)
    return_each(queue, V.given_back, behind.refs, behind.leases, freed, now, 0, nil, true)
    refs, leases = counted.refs, counted.leases
  end
  return_each(queue, cause, refs, leases, freed, now, due, consumer_reason)
end

-- Messages were given up: what is leased behind them in their batches comes back where the holder says so, who goes on with none of it
-- then, and where it stops their groups.
local function return_behind_given_up(queue, refs, leases, freed, now, by)
  if not queue.concurrency or not group_state().has_batches(queue) then return end
  local own_refs, own_leases = {}, {}
  for i, ref in ipairs(refs) do
    if queue.on_failure == V.stop or leases[i].holder == by then
      own_refs[#own_refs + 1], own_leases[#own_leases + 1] = ref, leases[i]
    end
  end
  local behind = batch_return().leased_behind(queue, own_refs, own_leases)
  return_each(queue, V.given_back, behind.refs, behind.leases, freed, now, 0, nil, true)
end
