--- apply_journal: follow what a link brings of another instance's journal of a queue.
--- ARGV now, queue_name, starts, rows...
--- FAIL UNKNOWN_QUEUE, GAP, INCARNATION_OVER
--- GIVES {how many messages changed, how many are still to come}
--- FLAGS allow-oom
--- @include clock, fail, foreign_bookmarks, journal_entries, journal_batch, log_catch_up(), dispatch, deferred_entries, incarnations, timetable
-- starts: origins and the IDs behind which their rows begin, parted by spaces. rows: see replication/lib/journal_batch. Call it late or twice: `received`
-- decides, and of transfers the epoch.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local own = call('HGET', K.instance(), F.origin)
local period = call('HGET', K.queue(queue_name), F.deferral) or V.deferred_period
local stream, freed, changed, waiting, complete = 'journal ' .. queue_name, {}, 0, 0, {}

for origin, start in string.gmatch(starts, '(%S+) (%S+)') do
  if not is_former_incarnation(origin) then check_start(stream, origin, start, (received_of(stream, origin))) end
end

local function follow(entry)
  local refs, epochs, names, known = {}, {}, {}, {}
  for i, bookmark in ipairs(entry.bookmarks) do
    local here, topic, origin, id = find_bookmark(bookmark, own)
    local ref = here and ref_of(topic, here)
    -- One bookmark may stand for another: the same message, sent twice by its publisher.
    if ref and (entry.how ~= V.transferred or is_counting_bookmark(topic, here, origin .. '~' .. id)) then
      if not known[ref] then local number = #refs + 1
        refs[number], epochs[number], names[number], known[ref] = ref, entry.epochs[i] or '0', bookmark, true end
    elseif not here and is_to_come(topic, origin, id, own) then
      defer_entry(queue_name, topic, origin .. '~' .. id, entry, entry.epochs[i], ms + period)
      waiting = waiting + 1
    end
  end
  changed = changed + #follow_journal(queue, entry, refs, epochs, names, freed, ms)
end

local rows = read_journal_batch(rows_from)
for _, entry in ipairs(rows) do check_incarnations(entry.path, string.match(entry.source, '^[^~]*')) end
for _, entry in ipairs(rows) do
  local origin, id = string.match(entry.source, '^([^~]+)~(.+)$')
  complete[origin] = complete[origin] or received_of(stream, origin)
  local is_further = order_of(id) > order_of(complete[origin])
  if origin ~= own and (is_further or entry.late) and not is_recorded_here(K.journal(queue_name), origin, id) then follow(entry) end
  if origin ~= own and is_further then
    complete[origin] = id
    note_received(stream, origin, id, '-')
  end
end
free_room(freed, ms, queue_name)
-- What was settled before it was read is noted ahead: reading on forgets it.
if call('EXISTS', K.ahead(queue_name)) == 1 and not log_catch_up().catch_up_with_logs(queue, ms) then
  add_due(ms, 'read ' .. queue_name, 'NX')
end
dispatch_or_defer(queue_name, ms, V.batch)
return {changed, waiting}
