--- upgrade_queues: format 4 to 5: some of the queues of an instance.
--- ARGV now, step, cursor, queues...
--- GIVES {format, cursor}
--- FLAGS allow-oom
--- @include clock, upgrade_cursor, queue, next_messages, journal_start
-- queues: the next ones behind the cursor, in the order of names; none: this part is over. Where the upgrade is elsewhere nothing is done.
local ms = clock_ms(now)
if not is_at_cursor(step, cursor) then return upgrade_state() end

-- Its places may have been reckoned by what this format reads otherwise of bodies beyond V.small_body.
local function has_places_by_bodies(name)
  local found = false
  for _, field in ipairs(call('HKEYS', K.filters(name))) do
    found = found or field == F.priority or field == F.barrier or string.find(field, '^filter ')
  end
  return found
end

-- One that has only its own messages is read when somebody needs it.
local function has_copies(name)
  local found = false
  for _, topic in ipairs(call('HKEYS', K.cursors(name))) do found = found or call('EXISTS', K.origins(topic)) == 1 end
  return found
end

for i = queues_from, #ARGV do
  local name, queue = ARGV[i], load_queue(ARGV[i])
  -- When it last asked for more than it had room for; owners pick now.
  call('HDEL', K.queue(name), 'beyond')
  begin_journal(name)
  -- What was copied is read on, so that it is known as another instance's, also where nobody subscribes.
  if queue.owner and has_copies(name) and something_waits(queue) then call('ZADD', K.due(), 'NX', ms, 'read ' .. name) end
  if has_places_by_bodies(name) then
    call('HSET', K.filters(name), F.resort, 1)
    call('ZADD', K.due(), 'NX', ms, 'dispatch ' .. name)
  end
end
move_cursor(cursor, queues_from)
return upgrade_state()
