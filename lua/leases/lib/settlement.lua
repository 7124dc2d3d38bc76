--- settlement: what the holder of a lease, or an administrator, does with messages: one check for every verb.
--- @include unleased_settlement, timetable

local function extend_leases(queue, refs, leases, now, period)
  local values, earliest = {}, now + period
  for i, ref in ipairs(refs) do
    local lease = leases[i]
    values[#values + 1] = ref
    values[#values + 1] = lease_value(lease, now + period, period)
  end
  call_in_batches('HSET', K.leases(queue.name), values)
  if #refs == 0 then return end
  add_due(earliest, 'leases ' .. queue.name, 'LT')
  -- A pass that is half done may have read the old deadlines.
  local cursor, found, started = string.match(call('HGET', K.queue(queue.name), F.passing) or '', '^(%d+) (%d+) (%d+)$')
  if cursor and (found == '0' or earliest < tonumber(found)) then
    call('HSET', K.queue(queue.name), F.passing, cursor .. ' ' .. earliest .. ' ' .. started)
  end
end

-- What almost every call is: the holder acknowledges what it was given for the first time. False when it is not that.
local function acknowledge_first_deliveries(queue, refs, tokens, values, by, freed)
  local seen, first_time, find = {}, ' ' .. by .. ' 1 ', string.find
  for i = 1, #refs do
    local ref, value = refs[i], values[i]
    if not value or seen[ref] or find(value, tokens[i] .. first_time, 1, true) ~= 1 then return false end
    seen[ref] = true
  end
  call_in_batches('HDEL', K.leases(queue.name), refs)
  if not queue.once then write_journal(queue.name, V.acknowledged, '', refs, by) end
  freed[by] = (freed[by] or 0) + #refs
  return true
end

-- tokens: '' = whoever holds it, as `leasing` allows `by`. period: the delay of a cancel, -1 for the queue's own, or the length of an extension,
-- ms. consumer_reason: why, nil where that is not said. Returns {ref, code, ...} of those refused; the others are done.
local function settle_messages(queue, now, verb, period, refs, tokens, by, freed, consumer_reason)
  local refused, seen = {}, {}
  if #refs == 0 then return refused end
  local ends = verb == V.acknowledged or verb == V.expired
  local values = call('HMGET', K.leases(queue.name), unpack(refs))
  if verb == V.acknowledged and not consumer_reason and acknowledge_first_deliveries(queue, refs, tokens, values, by, freed) then return refused end
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
    settle_unleased(queue, verb, verb == V.expired and V.forced_expire or '', refs, found, by, consumer_reason)
  elseif verb == V.extended then
    extend_leases(queue, done, leases, now, period)
  else
    local due = period > 0 and now + period or period == 0 and 0 or nil
    return_leased(queue, verb, done, leases, freed, now, due, consumer_reason)
  end
  return refused
end
