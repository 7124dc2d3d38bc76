--- lease_pass: one bounded step of reading through a queue's leases; lapsed ones and those of absent holders go back.
--- @include uncollected_leases, dispatch, timetable, lease_runs

-- lease: of a message, or a run. nil: it lasts.
local function cause_of_end(lease, ms, present)
  if present[lease.holder] == nil then
    present[lease.holder] = call('EXISTS', K.subscription(lease.holder)) == 1
  end
  if not present[lease.holder] then return V.disconnected end
  return lease.deadline > 0 and lease.deadline <= ms and V.lapsed or nil
end

local function sort_lease(found, ref, lease, ms, present)
  local cause = cause_of_end(lease, ms, present)
  if cause then
    local list = found[cause]
    list.refs[#list.refs + 1] = ref
    list.leases[#list.leases + 1] = lease
  end
  return cause
end

-- The clock went back: no deadline may lie further ahead than its own length. What was leased in a run gets a lease of its own.
local function clamp_deadline(queue, ref, lease, ms)
  lease.deadline = ms + lease.length
  leave_runs(queue, {ref})
  call('HSET', K.leases(queue.name), ref, lease_value(lease, lease.deadline, lease.length))
end

-- Refs and values in turn of the leases of some runs behind one that end or are to be clamped, as many as a call may end at most; the run behind
-- which it goes on, '' at the end; the earliest deadline of those that last; whether part of the run that comes next is left.
local function ending_in_runs(queue, behind, ms, present, earliest)
  local found, runs = {}, queue.in_runs and runs_behind(queue.name, behind, V.batch) or {}
  for _, run in ipairs(runs) do
    if run.deadline > ms + run.length or cause_of_end(run, ms, present) then
      local values, is_more_left = leases_in_run(queue.name, run, V.returned - #found / 2)
      for _, text in ipairs(values) do found[#found + 1] = text end
      if is_more_left then return found, behind, earliest, true end
    elseif run.deadline > 0 and (earliest == 0 or run.deadline < earliest) then
      earliest = run.deadline
    end
    behind = run.member
  end
  return found, #runs == V.batch and behind or '', earliest, false
end

-- again: the step that begins there is to be made, also from the beginning. The next pass is due at the earliest deadline left. Leases made during this pass end no earlier than a lease period
-- after its start.
local function schedule_lease_pass(queue, ms, cursor, earliest, started, behind, again)
  local member = 'leases ' .. queue.name
  if again or cursor ~= '0' or behind ~= '' then
    call('HSET', K.queue(queue.name), F.passing, cursor .. ' ' .. earliest .. ' ' .. started .. ' ' .. behind)
    add_due(ms, member)
    return
  end
  call('HDEL', K.queue(queue.name), F.passing)
  if queue.lease > 0 and (earliest == 0 or started + queue.lease < earliest) then earliest = started + queue.lease end
  -- Without a lease period only the absence of a holder ends a lease, and the scan may have missed some: a server that
  -- restarts in the middle of a pass orders its tables anew. So a pass follows while there are any.
  if earliest == 0 then earliest = ms + V.pass_again end
  if number_leased(queue.name) > 0 then
    add_due(math.max(earliest, ms + V.due_period), member)
  else
    call('ZREM', K.due(), member)
  end
end

-- Who let a message lapse may hang, and would get it again and again beside one that has nothing to do: it comes behind all others in what this
-- call delivers; see free_subscriptions.lua.
local function set_back_holders(lists)
  for _, list in ipairs(lists) do
    for _, lease in ipairs(list.leases) do
      local subscription = load_subscription(lease.holder)
      if subscription then subscription.set_back = 2 ^ 52 end
    end
  end
end

local function pass_leases(name, ms)
  local queue = load_queue(name)
  local state = call('HGET', K.queue(name), F.passing) or '0 0 ' .. ms .. ' '
  -- behind: up to which run they are read; runs come before all other leases.
  local cursor, earliest, started, behind = string.match(state, '^(%d+) (%d+) (%d+) (.*)$')
  earliest, started = tonumber(earliest), tonumber(started)
  local found = {[V.disconnected] = {refs = {}, leases = {}}, [V.lapsed] = {refs = {}, leases = {}}}
  local present, values, again, is_cut = {}, {}, false, false
  local from_cursor, from_behind = cursor, behind
  if cursor == '0' then values, behind, earliest, is_cut = ending_in_runs(queue, behind, ms, present, earliest) end
  local number_in_runs = #values
  if behind == '' and not is_cut then
    local scanned = call('HSCAN', K.leases(name), cursor, 'COUNT', math.max(V.returned - #values / 2, 10))
    cursor = scanned[1]
    for _, text in ipairs(scanned[2]) do values[#values + 1] = text end
  end
  for i = 1, #values, 2 do
    local ref = values[i]
    if ref ~= V.anchor then
      local lease = parse_lease(values[i + 1])
      lease.was_in_run = i <= number_in_runs
      if lease.deadline > ms + lease.length then clamp_deadline(queue, ref, lease, ms) end
      local ends = sort_lease(found, ref, lease, ms, present)
      if not ends and lease.deadline > 0 and (earliest == 0 or lease.deadline < earliest) then
        earliest = lease.deadline
      end
    end
  end
  local freed, given_back = {}, {refs = {}, leases = {}}
  local function ends(lease) return cause_of_end(lease, ms, present) end
  for _, list in pairs(found) do again = sort_out_uncollected(queue, list, given_back, ends) or again end
  if again then cursor, behind = from_cursor, from_behind end
  local returned = #given_back.refs
  for cause, list in pairs(found) do
    return_leased(queue, cause, list.refs, list.leases, freed, ms, nil)
    returned = returned + #list.refs
  end
  return_leased(queue, V.given_back, given_back.refs, given_back.leases, freed, ms, 0)
  schedule_lease_pass(queue, ms, cursor, earliest, started, behind, again or is_cut)
  free_room(freed, ms, name)
  set_back_holders({found[V.lapsed], given_back})
  -- A call has one batch of work: what many returns leave of it, each of which is as much as two deliveries.
  dispatch_or_defer(name, ms, math.max(V.batch - 2 * returned, V.batch / 10))
end
