--- drop_group: messages of a group that wait leave their queue as expired: a part of them a call; what is leased stays so.
--- ARGV now, queue_name, group, source, after, until_id, only_count, reason
--- FAIL UNKNOWN_QUEUE, REBUILDING
--- GIVES {`after` of the next call or '', how many left, or would leave, -1 of a queue without groups}
--- FLAGS allow-oom
--- @include clock, fail, queue, ref, judging_plan, group_dropping(), timetable
-- source: `placed`, what has its place in the group; `returned`, what came back and waits for its delay; `log <topic>`, what is unread. Of
-- each what was recorded up to `until_id`. only_count: 1 to change nothing. reason: why, '' for nothing.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.concurrency then return {'', -1} end
if queue.topic == V.nowhere then fail(E.REBUILDING, {queue = queue_name}) end
local drop = {queue = queue, group = group, last = order_of(until_id), only_count = only_count == '1', reason = reason ~= '' and reason or nil,
  plan = load_plan(queue), number = 0, most = V.batch / 2}
local topic, following, dropping = string.match(source, '^log (.*)$'), nil, group_dropping()
if topic then
  following = dropping.drop_unread(drop, topic, after, ms)
elseif source == 'returned' then
  following = dropping.drop_returned(drop, after, ms)
else
  following = dropping.drop_placed(drop, after, ms)
end
if drop.number > 0 and not drop.only_count then add_due(ms, 'dispatch ' .. queue_name, 'NX') end
return {following, drop.number}
