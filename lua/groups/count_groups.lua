--- count_groups: how many of a part of a queue's groups are in flight, on hold, stopped and paused, and the queue's oldest message.
--- ARGV now, queue_name, cursor, count
--- FAIL UNKNOWN_QUEUE
--- GIVES {ms now; cursor of the next part or '0'; groups of the queue in all; of the part: those of which something is leased, those that failed messages hold, stopped ones, paused ones; ms of the queue's oldest message that waits in its group, or ''}
--- FLAGS no-writes, allow-oom
--- @include clock, fail, queue, group_state, listing
-- What is unread and not listed is in no group yet.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local key = K.groups(queue_name)
local scanned = call('HSCAN', key, cursor, 'COUNT', count)
local leased, on_hold, stopped, paused, found = 0, 0, 0, 0, scanned[2]
for i = 1, #found, 2 do
  -- The anchor counts as nothing.
  local state = state_of(found[i], found[i + 1])
  if state.leased > 0 then leased = leased + 1 end
  if is_held(queue, state) then on_hold = on_hold + 1 end
  if state.stopped > 0 then stopped = stopped + 1 end
  if state.paused then paused = paused + 1 end
end
local first, listed = call('ZRANGE', K.sorted(queue_name, V.none), 0, 0)[1], queue.concurrency and oldest_listed(queue)
if listed and (not first or listed < first) then first = listed end
local number = queue.concurrency and math.max(call('HLEN', key) - 1, 0) or 0
return {string.format('%.0f', ms), scanned[1], number, leased, on_hold, stopped, paused, first and string.match(first, '^%l(%d+)') or ''}
