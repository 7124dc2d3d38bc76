--- journal_entries: what another instance journaled of messages, done here.
--- @include ownership_transfer, leases, ref

-- Follows the owner's word wherever the message is. entry: how, reason, by, attempts, returns, consumer_reason, source, path, late.
-- Returns those that it changed.
local function settle_by_journal(queue, entry, refs, freed, now)
  local scores, changed, remote, total = call('ZMSCORE', K.remote(queue.name), unpack(refs)), {}, {}, 0
  local groups = {ready = {}, held = {}, sorted = {}, delayed = {}, scheduled = {}, waiting = {}}
  local leased, leases = {}, {}
  for i, ref in ipairs(refs) do
    local where, known = nil, nil
    if scores[i] then
      remote[#remote + 1] = ref
      total = total + now - string.match(ref, '^%l(%d+)')
    else
      where, known = where_is(queue, ref)
    end
    if where == 'leased' then leased[#leased + 1], leases[#leases + 1] = ref, parse_lease(known) end
    if groups[where] then table.insert(groups[where], ref) end
    if scores[i] or where == 'leased' or groups[where] then changed[#changed + 1] = ref end
  end
  call_in_batches('ZREM', K.remote(queue.name), remote)
  call_in_batches('ZREM', K.asked(queue.name), remote)
  remove_unleased(queue, groups, entry.how)
  if groups.held[1] then release_held(queue) end
  if leased[1] then end_leases(queue, leased, leases, freed) end
  call_in_batches('HDEL', K.attempts(queue.name), changed)
  if remote[1] then
    local usual, mean = tonumber(call('HGET', K.queue(queue.name), F.usual) or 0), total / #remote
    call('HSET', K.queue(queue.name), F.usual, string.format('%.0f', usual + (mean - usual) / 8))
  end
  if not changed[1] then return changed end
  notify_watchers(queue, changed)
  write_foreign_journal(queue, entry, changed)
  return changed
end

-- At most once, what was never picked up is where it was before it was delivered.
local function give_back_by_journal(queue, entry, refs)
  local back, places = {}, {}
  for _, ref in ipairs(refs) do
    if call('HDEL', K.ahead(queue.name), ref) == 1 then
      back[#back + 1] = ref
    elseif where_is(queue, ref) == 'settled' then
      back[#back + 1] = ref
      places[#places + 1], places[#places + 2] = 0, ref
    end
  end
  call_in_batches('ZADD', K.remote(queue.name), places)
  if back[1] then write_foreign_journal(queue, entry, back) end
  return back
end

-- Whether a transfer counts beside what is known of the owner: by its epoch, then by who journaled it.
local function is_later_transfer(known, epoch, by)
  local known_epoch, known_by = string.match(known or '', '^%S+ (%d+) ?(%S*)')
  if not known_epoch or tonumber(epoch) ~= tonumber(known_epoch) then return tonumber(epoch) > tonumber(known_epoch or 0) end
  return by > known_by
end

-- For requests: the last message that was granted, and when; since when grants came one upon the other, how many messages they
-- brought, and how long one takes, ms.
local function note_granted(queue, refs, now)
  local asked = call('ZSCORE', K.asked(queue.name), refs[#refs]) or now
  local known = call('HGET', K.queue(queue.name), F.answered) or ''
  local since, count, takes = string.match(known, '^%S+ %d+ (%d+) (%d+) (%d+)$')
  if not since or now - since > tonumber(takes) then since, count = now, 0 end
  local text = string.format('%s %.0f %.0f %d %.0f', refs[#refs], now, since, count + #refs, math.max(now - asked, 0))
  call('HSET', K.queue(queue.name), F.answered, text)
end

-- A transfer counts for what is not settled, under the bookmark that counts.
local function transfer_by_journal(queue, entry, refs, epochs, names, now)
  local known, changed, new_epochs, mine, where = call('HMGET', K.owners(queue.name), unpack(refs)), {}, {}, {}, {}
  local new_names = {}
  local is_mine, by = message_owner().is_own_name(entry.owner), string.match(entry.source, '^[^~]*')
  for i, ref in ipairs(refs) do
    where[ref] = where_is(queue, ref)
    if where[ref] and where[ref] ~= 'settled' and is_later_transfer(known[i], epochs[i], by) then
      local number = #changed + 1
      changed[number], new_epochs[number], new_names[number] = ref, epochs[i], names[i]
      if is_mine and where[ref] == V.remote then mine[#mine + 1] = ref end
    end
  end
  if not changed[1] then return changed end
  note_owners(queue, changed, entry.owner, new_epochs, by)
  if is_mine then
    if mine[1] then note_granted(queue, mine, now) end
    move_to_own(queue, mine, now)
    call('HINCRBY', K.queue(queue.name), F.transferred_in, #changed)
  else
    move_to_remote(queue, changed, where)
  end
  journal_transfer(queue, changed, entry.owner, new_epochs, new_names, entry.source, entry.path, entry.late)
  return changed
end

-- refs: each with its epoch and its bookmark in `epochs` and `names`, where it is a transfer.
local function follow_journal(queue, entry, refs, epochs, names, freed, now)
  if not refs[1] then return {} end
  if entry.how == V.transferred then return transfer_by_journal(queue, entry, refs, epochs, names, now) end
  if entry.how == V.given_back then return give_back_by_journal(queue, entry, refs) end
  return settle_by_journal(queue, entry, refs, freed, now)
end
