--- release_group: let a group go on that a failed message holds, or that was stopped; what is leased of it stays so.
--- ARGV now, queue_name, group
--- FAIL UNKNOWN_QUEUE
--- GIVES {how many failed messages held it, ms when it was stopped or 0}
--- FLAGS allow-oom
--- @include clock, fail, queue, group_state, timetable
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.concurrency then return {0, 0} end
local state = load_groups(queue, {group})[group]
if not state or state.held + state.stopped == 0 then return {0, 0} end
local cursor, freed = '0', {}
repeat
  local scanned = call('HSCAN', K.pinned(queue_name), cursor, 'COUNT', 1000)
  for i = 1, #scanned[2], 2 do
    if scanned[2][i + 1] == group then freed[#freed + 1] = scanned[2][i] end
  end
  cursor = scanned[1]
until cursor == '0'
call_in_batches('HDEL', K.pinned(queue_name), freed)
local held, stopped = state.held, state.stopped
state.held, state.stopped = 0, 0
save_groups(queue, {[group] = state})
add_due(ms, 'dispatch ' .. queue_name, 'NX')
return {held, stopped}
