--- release_group: let a group go on that a failed message holds, that was stopped, that waits for its rate, or that is bound to a subscription; what is leased of it stays so.
--- ARGV now, queue_name, group
--- FAIL UNKNOWN_QUEUE
--- GIVES {how many failed messages held it, ms when it was stopped or 0, 1 if messages of it waited and it had no token else 0; 1 behind it if it was bound to a subscription}; {-1} of a queue without groups
--- FLAGS allow-oom
--- @include clock, fail, queue, group_state, timetable
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.concurrency then return {-1} end
local state = load_groups(queue, {group})[group]
local waits = queue.group_rate and state.waiting > 0 and tokens_of_group(queue, state) == 0
-- Bound to one that is gone, it may stand so until somebody comes upon it.
review_binding(queue, state)
local bound = state.bound_to ~= nil
if state.held + state.stopped == 0 and not waits and not bound then return {0, 0, 0} end
local cursor, freed = '0', {}
repeat
  local scanned = call('HSCAN', K.pinned(queue_name), cursor, 'COUNT', 1000)
  for i = 1, #scanned[2], 2 do
    if scanned[2][i + 1] == group then freed[#freed + 1] = scanned[2][i] end
  end
  cursor = scanned[1]
until cursor == '0'
call_in_batches('HDEL', K.pinned(queue_name), freed)
unmark_failed(queue, state, freed)
local held, stopped = state.held, state.stopped
state.held, state.stopped = 0, 0
-- It may have its whole burst again.
if waits then
  state.full, state.is_paid = nil, false
  call('ZREM', K.rates(queue_name), group)
  call('ZREM', K.later(queue_name), group)
end
if bound then unbind(state) end
save_groups(queue, {[group] = state})
add_due(ms, 'dispatch ' .. queue_name, 'NX')
return {held, stopped, waits and 1 or 0, bound and 1 or nil}
