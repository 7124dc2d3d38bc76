--- due_messages: messages whose time has come enter `ready`, at the place of their arrival.
--- @include queue, batch, journal, watchers, timetable

-- The passes by the order of arrival have been where these come to, and the definition may have changed meanwhile: they are
-- looked at, at the earliest when they can be over.
local function note_life_ends(queue, refs)
  local lives = {}
  for i, ref in ipairs(refs) do lives[2 * i - 1], lives[2 * i] = string.match(ref, '^%l(%d+)') + queue.life, ref end
  call_in_batches('ZADD', K.lives(queue.name), lives)
  for i = 1, #lives, 2 do add_due(lives[i], 'expiry ' .. queue.name, 'LT') end
end

-- refs, in any order; whoever calls took them off the timetable. A full ring has no room for them: it keeps what it has.
local function enter_ready(queue, refs)
  local ring, evicted, ready = queue.sorted and call('HGET', K.filters(queue.name), F.ring), {}, {}
  if ring then
    local waiting = call('ZCARD', K.ready(queue.name)) + call('ZCARD', K.sorted(queue.name, V.none))
    local room = math.max(string.match(ring, '^%d+') - waiting, 0)
    table.sort(refs)
    while #refs > room do evicted[#evicted + 1] = table.remove(refs, 1) end
  end
  for i, ref in ipairs(refs) do ready[2 * i - 1], ready[2 * i] = 0, ref end
  call_in_batches('ZADD', K.ready(queue.name), ready)
  if queue.life > 0 then note_life_ends(queue, refs) end
  notify_watchers(queue, refs)
  if not evicted[1] then return end
  call_in_batches('HDEL', K.attempts(queue.name), evicted)
  write_journal(queue.name, V.evicted, V.ring, evicted, '')
end
