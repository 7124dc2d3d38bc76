--- pause_group: let nothing more of a group be delivered, until it is resumed, or let it go on; what is leased of it stays so.
--- ARGV now, queue_name, group, paused, by
--- FAIL UNKNOWN_QUEUE
--- GIVES 1 if that changed something, 0 if it was so, -1 of a queue without groups
--- FLAGS allow-oom
--- @include clock, fail, queue, group_state, timetable
-- paused: 1, or 0 to let it go on. by: who pauses it. A group of which nothing is there can be paused, too.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.concurrency then return -1 end
local state = load_groups(queue, {group})[group]
if (state.paused ~= nil) == (paused == '1') then return 0 end
state.paused, state.paused_by = nil, nil
if paused == '1' then state.paused, state.paused_by = ms, (string.gsub(by, '%c', ' ')) end
save_groups(queue, {[group] = state})
if paused ~= '1' then add_due(ms, 'dispatch ' .. queue_name, 'NX') end
return 1
