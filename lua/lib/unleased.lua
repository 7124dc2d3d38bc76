--- unleased: settling messages that nobody holds, by bookmark: what waits, is ready or is delayed.
--- @include leases, ref, whereabouts, events

-- Why a message without a lease cannot be settled by this call; nil when it can: then where it stands.
local function find_unleased(queue, ref, token, verb)
  local where = where_is(queue, ref)
  if not where then return E.UNKNOWN_MESSAGE end
  if where == 'settled' then return E.ALREADY_ACKED end
  if token ~= '' or verb ~= V.acknowledged and verb ~= V.expired then return E.STALE_LEASE end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry or ref_of(topic, entry[1]) ~= ref then return E.UNKNOWN_MESSAGE end
  return nil, where
end

local function settle_unleased(queue, verb, refs, found)
  local settled, held = {}, false
  for _, ref in ipairs(refs) do
    local where = found[ref]
    if where == 'ready' then
      call('ZREM', K.ready(queue.name), ref)
      if queue.sorted then call('HDEL', K.places(queue.name), ref) end
    elseif where == 'held' then
      call('ZREM', K.held(queue.name), ref)
      held = true
    elseif where == 'sorted' then
      remove_sorted(queue, {ref}, {member_of(queue, ref)})
    elseif where == 'delayed' then
      call('ZREM', K.due(), 'ready ' .. queue.name .. ' ' .. ref)
      call('HINCRBY', K.queue(queue.name), F.delayed, -1)
    elseif where then
      call('HSET', K.ahead(queue.name), ref, verb)
    end
    if where then settled[#settled + 1] = ref end
    found[ref] = nil
  end
  if #settled == 0 then return end
  -- It may have been the barrier: those behind it are judged anew.
  if held then release_held(queue) end
  note_changes(queue, settled)
  if verb == V.expired then return expire(queue, V.forced_expire, settled, {}) end
  call_in_batches('HDEL', K.attempts(queue.name), settled)
  journal(queue.name, verb, '', settled)
end
