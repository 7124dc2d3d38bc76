--- unleased_settlement: settling messages that nobody holds, by bookmark: what waits, is ready or is delayed.
--- @include lease_return, ref, message_place, watchers, message_life, listing_form

-- Why a message without a lease cannot be settled by this call; nil when it can: then where it stands.
local function find_unleased(queue, ref, token, verb)
  local where = where_is(queue, ref)
  if not where then return E.UNKNOWN_MESSAGE end
  if where == 'unknown' then return E.REBUILDING end
  if where == 'settled' then return E.ALREADY_ACKED end
  if where == V.remote then return E.OWNED_ELSEWHERE end
  if token ~= '' or verb ~= V.acknowledged and verb ~= V.expired then return E.STALE_LEASE end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry or ref_of(topic, entry[1]) ~= ref then return E.UNKNOWN_MESSAGE end
  local _, _, addressed = delivery_options_of(entry[2])
  if addressed and addressed ~= queue.name then return E.UNKNOWN_MESSAGE end
  -- What is unread is in no list that says so.
  if where == 'waiting' and is_remote(queue, ref, entry[2]) then return E.OWNED_ELSEWHERE end
  return nil, where
end

-- Takes messages out of where each of them waits; `ahead` notes how what is unread ended.
local function remove_unleased(queue, groups, how)
  call_in_batches('ZREM', K.ready(queue.name), groups.ready)
  if queue.sorted then call_in_batches('HDEL', K.places(queue.name), groups.ready) end
  call_in_batches('ZREM', K.held(queue.name), groups.held)
  local members, later, ahead = {}, {}, {}
  for i, ref in ipairs(groups.sorted) do members[i] = member_of(queue, ref) end
  if members[1] then remove_from_indexes(queue, groups.sorted, members) end
  for i, ref in ipairs(groups.delayed) do later[i] = 'ready ' .. queue.name .. ' ' .. ref end
  for _, ref in ipairs(groups.scheduled) do later[#later + 1] = 'scheduled ' .. queue.name .. ' ' .. ref end
  call_in_batches('ZREM', K.due(), later)
  for field, refs in pairs({[F.delayed] = groups.delayed, [F.scheduled] = groups.scheduled}) do
    call_in_batches('ZREM', K.lives(queue.name), refs)
    if refs[1] then call('HINCRBY', K.queue(queue.name), field, -#refs) end
  end
  for i, ref in ipairs(groups.waiting) do ahead[2 * i - 1], ahead[2 * i] = ref, how end
  call_in_batches('HSET', K.ahead(queue.name), ahead)
  if ahead[1] then set_listing_form(queue, V.listing_broken) end
end

-- found: ref -> where it stands. Nobody holds these, so there is no room to free.
local function settle_unleased(queue, how, reason, refs, found, by, consumer_reason)
  local settled, groups = {}, {ready = {}, held = {}, sorted = {}, delayed = {}, scheduled = {}, waiting = {}}
  for _, ref in ipairs(refs) do
    local group = found[ref] and groups[found[ref]]
    if group then group[#group + 1], settled[#settled + 1] = ref, ref end
    found[ref] = nil
  end
  if #settled == 0 then return end
  remove_unleased(queue, groups, how)
  -- It may have been the barrier: those behind it are judged anew.
  if groups.held[1] then release_held(queue) end
  notify_watchers(queue, settled)
  if how == V.expired then return expire_messages(queue, reason, settled, {}, by, consumer_reason) end
  call_in_batches('HDEL', K.attempts(queue.name), settled)
  write_journal(queue.name, how, reason, settled, by, nil, nil, consumer_reason)
end
