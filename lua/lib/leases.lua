--- leases: reading them, and the one place where leased messages go back or are settled.
-- Callers check everything first; from here on there are only writes.
--- @include subscription, journal, batch, events

-- `<token> <holder> <delivery> <deadline> <length>`; numbers that never rise are last, so a prefix identifies.
local function parse_lease(value)
  local token, holder, delivery, deadline, length = string.match(value, '^(%d+) (%S+) (%d+) (%d+) (%d+)$')
  return {holder = holder, deadline = tonumber(deadline), token = token, delivery = tonumber(delivery),
    length = tonumber(length)}
end

local function lease_value(token, holder, delivery, deadline, length)
  return token .. ' ' .. holder .. ' ' .. delivery .. ' ' .. deadline .. ' ' .. length
end

local function end_leases(queue, refs, leases, freed)
  call_in_batches('HDEL', K.leases(queue.name), refs)
  for i = 1, #refs do
    local holder = leases[i].holder
    freed[holder] = (freed[holder] or 0) + 1
  end
end

-- Removed unprocessed: journaled with how often each was delivered and cancelled, for whoever mends it. leases[i] is nil
-- where nobody holds the message.
local function expire(queue, reason, refs, leases)
  local known, attempts = call('HMGET', K.attempts(queue.name), unpack(refs)), {}
  for i = 1, #refs do
    local deliveries, cancels = string.match(known[i] or '0 0', '^(%d+) (%d+)')
    attempts[i] = (leases[i] and leases[i].delivery or deliveries) .. ':' .. cancels
  end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  journal(queue.name, V.expired, reason, refs, attempts)
end

-- At-most-once journaled the removal when it delivered; here only the room comes back.
local function settle_leased(queue, how, refs, leases, freed)
  if #refs == 0 then return end
  end_leases(queue, refs, leases, freed)
  if queue.once then return end
  if how == V.expired then return expire(queue, V.forced_expire, refs, leases) end
  local returned = {}
  for i = 1, #refs do
    if leases[i].delivery > 1 then returned[#returned + 1] = refs[i] end
  end
  call_in_batches('HDEL', K.attempts(queue.name), returned)
  journal(queue.name, how, '', refs)
end

local function limits_reached(queue, deliveries, cancels)
  local reasons = {}
  if queue.cancels > 0 and cancels >= queue.cancels then reasons[#reasons + 1] = V.max_cancels end
  if queue.deliveries > 0 and deliveries >= queue.deliveries then reasons[#reasons + 1] = V.max_deliveries end
  return table.concat(reasons, ',')
end

local function expire_returned(queue, expired)
  for reason, batch in pairs(expired) do
    journal(queue.name, V.expired, reason, batch.refs, batch.attempts)
    call_in_batches('HDEL', K.attempts(queue.name), batch.refs)
  end
end

-- cause: cancelled, lapsed, disconnected or given_back (which counts for nothing). due: ms when to be ready, or 0.
local function return_leased(queue, cause, refs, leases, freed, due)
  if #refs == 0 then return end
  end_leases(queue, refs, leases, freed)
  -- At most once nothing comes back, but what never was handed to anybody.
  if queue.once and cause ~= V.given_back then return end
  if queue.once then journal(queue.name, cause, '', refs) end
  local known = call('HMGET', K.attempts(queue.name), unpack(refs))
  local counts, ready, later, expired = {}, {}, {}, {}
  for i, ref in ipairs(refs) do
    local cancels = known[i] and tonumber(string.match(known[i], '^%d+ (%d+)')) or 0
    local deliveries = leases[i].delivery
    if cause == V.cancelled then cancels = cancels + 1 end
    local reason = cause == V.given_back and '' or limits_reached(queue, deliveries, cancels)
    if reason ~= '' then
      local batch = expired[reason] or {refs = {}, attempts = {}}
      expired[reason] = batch
      batch.refs[#batch.refs + 1] = ref
      batch.attempts[#batch.attempts + 1] = deliveries .. ':' .. cancels
    else
      if cause ~= V.given_back then
        counts[#counts + 1] = ref
        counts[#counts + 1] = deliveries .. ' ' .. cancels .. ' ' .. cause
      end
      local target = due > 0 and later or ready
      target[#target + 1] = due > 0 and due or 0
      target[#target + 1] = due > 0 and 'ready ' .. queue.name .. ' ' .. ref or ref
    end
  end
  call_in_batches('HSET', K.attempts(queue.name), counts)
  call_in_batches('ZADD', K.ready(queue.name), ready)
  call_in_batches('ZADD', K.due(), later)
  if #later > 0 then call('HINCRBY', K.queue(queue.name), F.delayed, #later / 2) end
  call('HINCRBY', K.queue(queue.name), F.returned, #refs)
  note_changes(queue, refs)
  expire_returned(queue, expired)
end
