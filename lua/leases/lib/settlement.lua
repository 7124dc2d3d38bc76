--- settlement: what the holder of a lease, or an administrator, does with messages: one check for every verb.
--- @include unleased_settlement, timetable

-- The deadline of a lease that is extended, and its length. By -1 it is held as long again, no shorter than it was, and
-- one that never lapses stays so.
local function extended_lease(lease, now, period)
  if period >= 0 then return now + period, period end
  if lease.length == 0 then return lease.deadline, 0 end
  return math.max(lease.deadline, now + lease.length), lease.length
end

-- What holders report of messages: the token says of which delivery. Releases that do not know of it leave some behind; that is
-- seen where there is more of it than there are leases, which are reported of again.
local function keep_progress(queue, refs, leases, now, progress)
  local values = {}
  for i, ref in ipairs(refs) do
    values[2 * i - 1] = ref
    values[2 * i] = leases[i].token .. ' ' .. string.format('%.0f', now) .. ' ' .. progress
  end
  call_in_batches('HSET', K.progress(queue.name), values)
  if call('HLEN', K.progress(queue.name)) >= call('HLEN', K.leases(queue.name)) then
    call('DEL', K.progress(queue.name))
    call_in_batches('HSET', K.progress(queue.name), values)
  end
  if not queue.progress then call('HSET', K.queue(queue.name), F.progress, 1) end
  queue.progress = '1'
end

local function extend_leases(queue, refs, leases, now, period, progress)
  if #refs == 0 then return end
  local values, earliest = {}, math.huge
  for i, ref in ipairs(refs) do
    local deadline, length = extended_lease(leases[i], now, period)
    values[#values + 1] = ref
    values[#values + 1] = lease_value(leases[i], deadline, length)
    if deadline > 0 then earliest = math.min(earliest, deadline) end
  end
  leave_runs(queue, refs)
  call_in_batches('HSET', K.leases(queue.name), values)
  if progress then keep_progress(queue, refs, leases, now, progress) end
  if earliest == math.huge then return end
  add_due(earliest, 'leases ' .. queue.name, 'LT')
  -- A pass that is half done may have read the old deadlines.
  local cursor, found, rest = string.match(call('HGET', K.queue(queue.name), F.passing) or '', '^(%d+) (%d+) (.*)$')
  if cursor and (found == '0' or earliest < tonumber(found)) then
    call('HSET', K.queue(queue.name), F.passing, cursor .. ' ' .. earliest .. ' ' .. rest)
  end
end

-- What almost every call is: the holder acknowledges what it was given. False when it is not that.
local function acknowledge_own(queue, refs, tokens, values, by, freed)
  local seen, returned, holder, find, sub = {}, {}, ' ' .. by .. ' ', string.find, string.sub
  for i = 1, #refs do
    local ref, value, begins = refs[i], values[i], tokens[i] .. holder
    if not value or seen[ref] or find(value, begins, 1, true) ~= 1 then return false end
    seen[ref] = true
    -- What is known of its attempts is of those before.
    if sub(value, #begins + 1, #begins + 2) ~= '1 ' then returned[#returned + 1] = ref end
  end
  remove_leases(queue, refs, values)
  forget_progress(queue, refs)
  if not queue.once then call_in_batches('HDEL', K.attempts(queue.name), returned) end
  if not queue.sorted and queue.is_bare == nil then
    -- Mostly nothing lies in any of these: one look for whoever comes next.
    queue.is_bare = call('EXISTS', K.ready(queue.name), K.ahead(queue.name), K.owners(queue.name)) == 0
  end
  if not queue.once then write_journal(queue.name, V.acknowledged, '', refs, by) end
  freed[by] = (freed[by] or 0) + #refs
  return true
end

-- tokens: '' = whoever holds it, as `leasing` allows `by`. period: the delay of a cancel, -1 for the queue's own, or the length of an extension,
-- -1 for the lease's own, ms. consumer_reason: why, nil where that is not said; of an extension how far its holder is. Returns {ref, code, ...} of those refused; the others are done.
local function settle_messages(queue, now, verb, period, refs, tokens, by, freed, consumer_reason)
  local refused, seen = {}, {}
  if #refs == 0 then return refused end
  local ends = verb == V.acknowledged or verb == V.expired
  local values = lease_values(queue, refs)
  if verb == V.acknowledged and not consumer_reason and acknowledge_own(queue, refs, tokens, values, by, freed) then return refused end
  queue.is_bare = nil
  local done, leases, found = {}, {}, {}
  for i = 1, #refs do
    local ref, token, value, code, where = refs[i], tokens[i], values[i], nil, nil
    if seen[ref] then
      code = ends and E.ALREADY_ACKED or E.STALE_LEASE
    elseif value then
      local lease = parse_lease(value)
      if token ~= '' and token ~= lease.token then
        code = E.STALE_LEASE
      elseif token == '' and queue.strict and by ~= lease.holder then
        code = E.NOT_LEASE_HOLDER
      else
        done[#done + 1] = ref
        leases[#leases + 1] = lease
      end
    else
      code, where = find_unleased(queue, ref, token, verb)
      if where then found[ref] = where end
    end
    if not code then
      seen[ref] = true
    else
      refused[#refused + 1] = ref
      refused[#refused + 1] = code
    end
  end
  if ends then
    settle_leased(queue, verb, done, leases, freed, by, consumer_reason)
    if verb == V.expired then return_behind_given_up(queue, done, leases, freed, now, by) end
    settle_unleased(queue, verb, verb == V.expired and V.forced_expire or '', refs, found, by, consumer_reason)
  elseif verb == V.extended then
    extend_leases(queue, done, leases, now, period, consumer_reason)
  else
    local due = period > 0 and now + period or period == 0 and 0 or nil
    return_leased(queue, verb, done, leases, freed, now, due, consumer_reason)
  end
  return refused
end
