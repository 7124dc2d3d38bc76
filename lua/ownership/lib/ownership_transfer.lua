--- ownership_transfer: messages of a queue that change owner, and what is journaled of it.
--- @include unleased_settlement, schedule, deliverable, timetable

-- epochs: of each message the one from now on. source, path: of a transfer that somebody else decided, else ''. Two transfers
-- of one epoch, by the operator's word at two places, are ordered by who journaled them. names: the bookmarks under which they
-- are transferred: where a lower one counts by the time that others hear of it, it is void. late: see replication/lib/journal_batch. Returns the ID.
local function journal_transfer(queue, refs, new_owner, epochs, names, source, path, late)
  local entry = {
    F.how, V.transferred, F.reason, '', F.refs, table.concat(refs, ' '), F.owner, new_owner, F.epochs, table.concat(epochs, ' '),
    F.bookmarks, table.concat(names, ' '),
  }
  if late then entry[13], entry[14] = F.late, '1' end
  local n = #entry
  if source ~= '' then entry[n + 1], entry[n + 2], entry[n + 3], entry[n + 4] = F.source, source, F.path, path end
  return call('XADD', K.journal(queue.name), '*', unpack(entry))
end

-- by: the origin that journaled it.
local function note_owners(queue, refs, new_owner, epochs, by)
  local values = {}
  for i, ref in ipairs(refs) do
    values[2 * i - 1], values[2 * i] = ref, new_owner .. ' ' .. epochs[i] .. ' ' .. by
  end
  call_in_batches('HSET', K.owners(queue.name), values)
end

-- where: ref -> where it stands; what somebody holds stays with them until they let it go. What is unread is noted ahead, so
-- that it is passed over.
local function move_to_remote(queue, refs, where)
  local groups, remote = {ready = {}, held = {}, sorted = {}, delayed = {}, scheduled = {}, waiting = {}}, {}
  for _, ref in ipairs(refs) do
    local group = groups[where[ref]]
    if group then
      group[#group + 1] = ref
      remote[#remote + 1], remote[#remote + 2] = 0, ref
    end
  end
  remove_unleased(queue, groups, V.transferred)
  call_in_batches('ZADD', K.remote(queue.name), remote)
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  notify_watchers(queue, refs)
end

-- What is owned here from now on, and was read before.
local function move_to_own(queue, refs, now)
  local ready, scheduled, over, missing, lives = {}, {}, {}, {}, {}
  call_in_batches('ZREM', K.remote(queue.name), refs)
  call_in_batches('ZREM', K.asked(queue.name), refs)
  for _, ref in ipairs(refs) do
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    local fate, at, ends = nil, nil, nil
    if entry then fate, at, ends = fate_of(queue, ref, entry[2], false, now) end
    if not entry then
      missing[#missing + 1] = ref
    elseif fate == V.scheduled then
      local number = #scheduled
      scheduled[number + 1], scheduled[number + 2], scheduled[number + 3] = ref, at, ends or false
    elseif fate == V.expired then
      over[#over + 1] = ref
    else
      ready[#ready + 1], ready[#ready + 2] = 0, ref
      -- The passes by the order of arrival may have been here.
      if at then lives[#lives + 1], lives[#lives + 2] = at, ref end
    end
  end
  call_in_batches('ZADD', K.ready(queue.name), ready)
  call_in_batches('ZADD', K.lives(queue.name), lives)
  for i = 1, #lives, 2 do add_due(lives[i], 'expiry ' .. queue.name, 'LT') end
  schedule_messages(queue, scheduled)
  expire_read(queue, over)
  if missing[1] then write_journal(queue.name, V.missing, '', missing, '') end
  notify_watchers(queue, refs)
end

-- Ready exactly if this instance owns it, else remote; what is leased or settled stays so.
local function place_by_owner(queue, ref, now)
  local where = where_is(queue, ref)
  if not where or where == 'settled' or where == 'leased' then return end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return end
  local is_mine = message_owner().is_owned_here(queue, ref, entry[2])
  if is_mine and where == V.remote then move_to_own(queue, {ref}, now) end
  if not is_mine and where ~= V.remote then move_to_remote(queue, {ref}, {[ref] = where}) end
end
