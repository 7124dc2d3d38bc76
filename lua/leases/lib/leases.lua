--- leases: reading them, and the one place where leased messages are settled.
-- Callers check everything first; from here on there are only writes.
--- @include subscription, journal, batch, watchers, lease_runs, clock, group_state()

-- `<token> <holder> <delivery> <deadline> <length>`, then, if its life ends, `<ms when>`; numbers that never rise are last,
-- so a prefix identifies. ` b` says that its group was not bound to its holder before. Behind a line feed stands its group, if it has one.
local function parse_lease(value)
  local token, holder, delivery, deadline, length = string.match(value, '^(%d+) (%S+) (%d+) (%d+) (%d+)$')
  if token then
    return {holder = holder, deadline = tonumber(deadline), token = token, delivery = tonumber(delivery), length = tonumber(length), begins = false}
  end
  local ends, mark, group
  token, holder, delivery, deadline, length, ends, mark, group =
    string.match(value, '^(%d+) (%S+) (%d+) (%d+) (%d+) ?(%d*) ?(b?)\n?(.*)$')
  return {holder = holder, deadline = tonumber(deadline), token = token, delivery = tonumber(delivery),
    length = tonumber(length), ends = tonumber(ends), begins = mark ~= '', group = group ~= '' and group or nil}
end

local function lease_value(lease, deadline, length)
  local value = lease.token .. ' ' .. lease.holder .. ' ' .. lease.delivery .. ' ' .. deadline .. ' ' .. length
  if lease.ends then value = value .. ' ' .. lease.ends end
  if lease.begins then value = value .. ' b' end
  return lease.group and value .. '\n' .. lease.group or value
end

-- What a holder reported goes with its lease; queue.progress: whether anything is kept at all.
local function forget_progress(queue, refs)
  if not queue.progress then return end
  call_in_batches('HDEL', K.progress(queue.name), refs)
  if call('EXISTS', K.progress(queue.name)) == 0 then
    call('HDEL', K.queue(queue.name), F.progress)
    queue.progress = false
  end
end

local function end_leases(queue, refs, leases, freed)
  remove_leases(queue, refs)
  forget_progress(queue, refs)
  for i = 1, #refs do
    local holder = leases[i].holder
    freed[holder] = (freed[holder] or 0) + 1
  end
end

-- What is known of a message that came back: deliveries, cancels, and how it came back each time.
local function read_attempts(value)
  return string.match(value or '0 0', '^(%d+) (%d+) ?%S* ?(%S*)$')
end

-- Removed unprocessed: journaled with how often each was delivered and cancelled and how it came back, for whoever mends
-- it. leases[i] is nil where nobody holds the message.
local function expire_messages(queue, reason, refs, leases, by, consumer_reason)
  local known, attempts, returns, came_back = call('HMGET', K.attempts(queue.name), unpack(refs)), {}, {}, false
  for i = 1, #refs do
    local deliveries, cancels, told = read_attempts(known[i])
    attempts[i] = (leases[i] and leases[i].delivery or deliveries) .. ':' .. cancels
    returns[i] = told ~= '' and told or '-'
    came_back = came_back or told ~= ''
  end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.expired, reason, refs, by, attempts, came_back and returns, consumer_reason)
end

-- At-most-once journaled the removal when it delivered; here only the room comes back.
local function settle_leased(queue, how, refs, leases, freed, by, consumer_reason)
  if #refs == 0 then return end
  end_leases(queue, refs, leases, freed)
  if queue.once then return end
  if how == V.expired then
    if queue.concurrency and queue.on_failure == V.stop then group_state().stop_groups_of(queue, leases, clock_read.ms) end
    return expire_messages(queue, V.forced_expire, refs, leases, by, consumer_reason)
  end
  local returned = {}
  for i = 1, #refs do
    if leases[i].delivery > 1 then returned[#returned + 1] = refs[i] end
  end
  call_in_batches('HDEL', K.attempts(queue.name), returned)
  write_journal(queue.name, how, '', refs, by, nil, nil, consumer_reason)
end
