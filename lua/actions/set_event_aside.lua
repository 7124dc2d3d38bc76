--- set_event_aside: put the event at an action's place among those that failed, and move the action past it.
--- ARGV action, source, expected, cursor, sequence, read, event, error, at, publishers...
--- GIVES {1, its number}; {0, 0} when the action is elsewhere; {2, n} when the n-th publisher has got it; {3, 0} when full
--- @include fail
-- publishers: pairs of the publisher of a step that is still to be made, and its topic, in order. One that has this event's
-- sequence recorded shows that somebody made its step. The others get the sequence without a message, so that a late
-- publish of it is a duplicate: what is set aside is published by `retry_event` alone. at: ms of the next try.
if (call('HGET', K.action(action), F.cursor .. ' ' .. source) or '0-0') ~= expected then return {0, 0} end
for i = #ARGV - 1, publishers_from, -2 do
  local last = string.match(call('HGET', K.publishers(), ARGV[i]) or '0', '^%d+')
  if tonumber(last) >= tonumber(sequence) then return {2, (i - publishers_from) / 2 + 1} end
end
if call('HLEN', K.failed(action)) >= V.most_failed then return {3, 0} end
for i = publishers_from, #ARGV, 2 do
  local place = string.match(call('HGET', K.publishers(), ARGV[i]) or '', '^%d+ (.*)$')
  call('HSET', K.publishers(), ARGV[i], sequence .. ' ' .. (place or '0-0 ' .. ARGV[i + 1]))
end
local number = call('HINCRBY', K.action(action), F.failures, 1)
call('HSET', K.failed(action), number, '1 ' .. event)
call('ZADD', K.retries(action), at, number)
call('HSET', K.action(action), F.cursor .. ' ' .. source, cursor, F.sequence_of .. ' ' .. source, sequence,
  F.read .. ' ' .. source, read, F.error, error)
return {1, number}
