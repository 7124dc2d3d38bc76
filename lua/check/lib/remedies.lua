--- remedies: makes one message's state what journal and log say.
--- @include verdict, leases, watchers, schedule, listing_form

-- The room of a lease that ends is freed by the caller.
local function remove_from_place(look, ref, place)
  local queue, name = look.queue, look.queue.name
  if place == 'l' then
    local holder = string.match(lease_values(queue, {ref})[1], '^%d+ (%S+)')
    remove_leases(queue, {ref})
    forget_progress(queue, {ref})
    look.freed[holder] = (look.freed[holder] or 0) + 1
  elseif place == 'r' then
    call('ZREM', K.ready(name), ref)
  elseif place == 's' then
    remove_from_indexes(queue, {ref}, {member_of(queue, ref)})
  elseif place == 'h' then
    call('ZREM', K.held(name), ref)
  elseif place == 'o' then
    call('ZREM', K.remote(name), ref)
  else
    call('ZREM', K.due(), (place == 'd' and 'ready ' or 'scheduled ') .. name .. ' ' .. ref)
    call('HINCRBY', K.queue(name), place == 'd' and F.delayed or F.scheduled, -1)
    call('ZREM', K.lives(name), ref)
  end
end

local function remove_from_places(look, ref, letters, from)
  for place in string.gmatch(string.sub(letters, from), '[lrshodc]') do remove_from_place(look, ref, place) end
end

-- A message that nothing has waits again; one that was published for later is due when it was.
local function bring_back(look, ref)
  local fate, at, ends = fate_of(look.queue, ref, look.fields, false, look.ms)
  if fate == V.scheduled then
    schedule_messages(look.queue, {ref, at, ends or false})
  elseif fate == V.remote then
    call('ZADD', K.remote(look.queue.name), 0, ref)
  else
    call('ZADD', K.ready(look.queue.name), 0, ref)
    expire_anew(look.queue)
  end
end

-- What each word of `verdict` asks for.
local remedies = {}

local function load_remedies()
  if remedies.lost then return remedies end
  function remedies.lost(look, ref) bring_back(look, ref) end
  function remedies.in_two_places(look, ref, letters) remove_from_places(look, ref, letters, 2) end
  function remedies.settled_but_live(look, ref, letters) remove_from_places(look, ref, letters, 1) end
  local function note_ahead(look, ref, how)
    call('HSET', K.ahead(look.queue.name), ref, how)
    set_listing_form(look.queue, V.listing_broken)
  end
  function remedies.settled_but_waiting(look, ref) note_ahead(look, ref, V.acknowledged) end
  function remedies.unread_but_live(look, ref) note_ahead(look, ref, V.delivered) end
  function remedies.ahead_unsettled(look, ref)
    call('HDEL', K.ahead(look.queue.name), ref)
    call('ZREM', K.lives(look.queue.name), ref)
    expire_anew(look.queue)
    set_listing_form(look.queue, V.listing_ends)
  end
  function remedies.ahead_left(look, ref) call('HDEL', K.ahead(look.queue.name), ref) end
  function remedies.remote_but_own(look, ref)
    remove_from_place(look, ref, 'o')
    call('ZREM', K.asked(look.queue.name), ref)
    bring_back(look, ref)
  end
  function remedies.own_but_remote(look, ref, letters)
    remove_from_places(look, ref, letters, 1)
    call('HDEL', K.attempts(look.queue.name), ref)
    call('ZADD', K.remote(look.queue.name), 0, ref)
  end
  function remedies.owner_left(look, ref) call('HDEL', K.owners(look.queue.name), ref) end
  function remedies.unjournaled(look, ref) write_journal(look.queue.name, V.delivered, '', {ref}, '') end
  function remedies.unrecorded(look, ref, letters)
    remove_from_places(look, ref, letters, 1)
    call('HDEL', K.attempts(look.queue.name), ref)
    write_journal(look.queue.name, V.missing, '', {ref}, '')
  end
  return remedies
end

local function mend_message(look, ref, word, letters)
  load_remedies()[word](look, ref, letters)
  notify_watchers(look.queue, {ref})
end
