--- lease_pass: one bounded step of reading through a queue's leases; lapsed ones and those of absent holders go back.
--- @include uncollected_leases, dispatch, timetable

local function sort_lease(found, ref, lease, ms, present)
  if present[lease.holder] == nil then
    present[lease.holder] = call('EXISTS', K.subscription(lease.holder)) == 1
  end
  local cause
  if not present[lease.holder] then
    cause = V.disconnected
  elseif lease.deadline > 0 and lease.deadline <= ms then
    cause = V.lapsed
  end
  if cause then
    local list = found[cause]
    list.refs[#list.refs + 1] = ref
    list.leases[#list.leases + 1] = lease
  end
  return cause
end

-- The clock went back: no deadline may lie further ahead than its own length.
local function clamp_deadline(queue, ref, lease, ms)
  lease.deadline = ms + lease.length
  call('HSET', K.leases(queue.name), ref, lease_value(lease, lease.deadline, lease.length))
end

-- The next pass is due at the earliest deadline left. Leases made during this pass end no earlier than a lease period
-- after its start.
local function schedule_lease_pass(queue, ms, cursor, earliest, started)
  local member = 'leases ' .. queue.name
  if cursor ~= '0' then
    call('HSET', K.queue(queue.name), F.passing, cursor .. ' ' .. earliest .. ' ' .. started)
    add_due(ms, member)
    return
  end
  call('HDEL', K.queue(queue.name), F.passing)
  if queue.lease > 0 and (earliest == 0 or started + queue.lease < earliest) then earliest = started + queue.lease end
  -- Without a lease period only the absence of a holder ends a lease, and the scan may have missed some: a server that
  -- restarts in the middle of a pass orders its tables anew. So a pass follows while there are any.
  if earliest == 0 then earliest = ms + V.pass_again end
  if call('HLEN', K.leases(queue.name)) > 1 then
    add_due(math.max(earliest, ms + V.due_period), member)
  else
    call('ZREM', K.due(), member)
  end
end

local function pass_leases(name, ms)
  local queue = load_queue(name)
  local state = call('HGET', K.queue(name), F.passing) or '0 0 ' .. ms
  local cursor, earliest, started = string.match(state, '^(%d+) (%d+) (%d+)$')
  earliest, started = tonumber(earliest), tonumber(started)
  local found = {[V.disconnected] = {refs = {}, leases = {}}, [V.lapsed] = {refs = {}, leases = {}}}
  local present, scanned = {}, call('HSCAN', K.leases(name), cursor, 'COUNT', V.batch)
  for i = 1, #scanned[2], 2 do
    local ref = scanned[2][i]
    if ref ~= V.anchor then
      local lease = parse_lease(scanned[2][i + 1])
      if lease.deadline > ms + lease.length then clamp_deadline(queue, ref, lease, ms) end
      local ends = sort_lease(found, ref, lease, ms, present)
      if not ends and lease.deadline > 0 and (earliest == 0 or lease.deadline < earliest) then
        earliest = lease.deadline
      end
    end
  end
  local freed, given_back = {}, {refs = {}, leases = {}}
  for _, list in pairs(found) do sort_out_uncollected(queue, list, given_back) end
  for cause, list in pairs(found) do return_leased(queue, cause, list.refs, list.leases, freed, ms, nil) end
  return_leased(queue, V.given_back, given_back.refs, given_back.leases, freed, ms, 0)
  schedule_lease_pass(queue, ms, scanned[1], earliest, started)
  free_room(freed, ms, name)
  dispatch_or_defer(name, ms, V.batch)
end
