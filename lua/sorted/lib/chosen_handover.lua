--- chosen_handover: what was chosen is leased and handed over, each subscription's share at once.
--- @include handover

-- Whether all of it may be one lease of `own`: of one topic, and of each there is the body alone. Read in this call, in the order of the log,
-- it follows the runs of before; else the run is scattered. known: of each what is known of its attempts.
local function may_be_one_run(queue, chosen, own, known)
  if not chosen.may_be_run or queue.fated or not chosen.refs[2] or not may_be_run(queue, own) then return false end
  if not chosen.is_fresh and not may_be_scattered(queue, #chosen.refs) then return false end
  for i, fields in ipairs(chosen.fields) do
    if chosen.subscriptions[i] ~= own or chosen.ends[i] or known and known[i] or #fields ~= 2 or fields[1] ~= F.body then return false end
  end
  return true
end

-- given: what `own` is returned, behind what is in it already.
local function write_deliveries(queue, chosen, token, own, now, given)
  local leases, pushes, count = {}, {}, #chosen.refs
  local known = call('EXISTS', K.attempts(queue.name)) == 1 and call('HMGET', K.attempts(queue.name), unpack(chosen.refs))
  local deadline, at = deadline_of(queue, now), 1
  if may_be_one_run(queue, chosen, own, known) then
    local head = hand_over_run(queue, text_of_equal_width(chosen.refs), count, own, token, deadline, given, not chosen.is_fresh)
    for i, fields in ipairs(chosen.fields) do given[head + i] = fields[2] end
    count_deliveries(queue, token, count)
    return write_leases(queue, now, {}, {})
  end
  count_deliveries(queue, token, count)
  chosen.deliveries = {}
  for i = 1, count do
    local before = known and known[i] and string.match(known[i], '^%d+') or 0
    chosen.deliveries[i] = string.format('%d', before + 1)
  end
  while at <= count do
    local subscription, last = chosen.subscriptions[at], at
    while chosen.subscriptions[last + 1] == subscription do last = last + 1 end
    local mine = subscription == own
    local out = mine and given or pushes[subscription.id] or {}
    if not mine then pushes[subscription.id] = out end
    hand_over(queue, chosen, at, last, subscription, token + at - 1, deadline, mine and element_of or pushed_element,
      leases, out)
    at = last + 1
  end
  for i, text in ipairs(chosen.groups or {}) do leases[2 * i] = leases[2 * i] .. text end
  write_leases(queue, now, leases, chosen.refs)
  for id, inbox in pairs(pushes) do call_in_batches('RPUSH', K.inbox(id), inbox) end
end
