--- begin_browse: where a walk over a queue's messages begins and ends, so that it sees each at most once.
--- ARGV queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES {last ID of all that is recorded, unread messages of the active part or -1, 1 if sorted, message type, topic, cursor, ...}
--- FLAGS no-writes, allow-oom
--- @include fail, queue, next_messages
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local last = call('GET', K.clock()) or '0-0'
local cursors, out = call('HGETALL', K.cursors(queue_name)), {}
for i = 1, #cursors, 2 do
  out[#out + 1] = cursors[i]
  out[#out + 1] = string.match(cursors[i + 1], '^%S+')
  local entry = call('XREVRANGE', K.log(cursors[i]), '+', '-', 'COUNT', 1)[1]
  if entry and order_of(entry[1]) > order_of(last) then last = entry[1] end
end
return {last, queue.depth > 0 and places_below_target_depth(queue) or -1, queue.sorted and 1 or 0, queue.format or '', unpack(out)}
