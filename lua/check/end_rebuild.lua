--- end_rebuild: end the rebuild of a queue: its cursors move, what was collected is ready, and it delivers again.
--- ARGV now, queue_name, owner, after, boundary, kept_out, topics...
--- FAIL UNKNOWN_QUEUE, REBUILDING
--- GIVES {0 done, 1 call again, or -1: read the journal on and ask again; the journal's last ID}
--- FLAGS allow-oom
--- @include clock, fail, paused_queue, journal_tail, batch, index_places, timetable
-- topics: each with its new cursor. boundary: the last ref that they pass. kept_out: how many of the messages up to there the queue's filter refuses, or ''.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
check_rebuilder(queue_name, owner)
local settled, last = read_journal_tail(queue_name, after)
if not settled then return {-1, after} end
local ready, rebuilt, gone = K.ready(queue_name), K.rebuilt(queue_name), {}
-- What is in a ring has entered it: it takes its place without pushing anything out.
local is_ring = call('HEXISTS', K.filters(queue_name), F.ring) == 1
if is_ring then ready = K.sorted(queue_name, V.none) end
for ref, weight in pairs(settled) do
  if weight > 0 then
    gone[#gone + 1] = ref
    if ref > boundary then call('HSETNX', K.ahead(queue_name), ref, V.acknowledged) end
  end
end
call_in_batches('ZREM', rebuilt, gone)

local function move(from, to)
  local moved, places = call('ZPOPMIN', from, V.batch), {}
  for i = 1, #moved, 2 do places[i], places[i + 1] = 0, moved[i] end
  call_in_batches('ZADD', to, places)
end

-- One rename for any number, where few came back meanwhile.
if call('ZCARD', ready) <= V.batch and call('EXISTS', rebuilt) == 1 then
  move(ready, rebuilt)
  call('RENAME', rebuilt, ready)
elseif call('EXISTS', rebuilt) == 1 then
  move(rebuilt, ready)
  if call('EXISTS', rebuilt) == 1 then return {1, last} end
end
if is_ring then
  for id in string.gmatch(queue.sorted, '%S+') do
    if id ~= V.none then
      call('UNLINK', K.sorted(queue_name, id))
      call('HSET', K.filters(queue_name), 'place ' .. id, '-inf')
    end
  end
end
expire_anew(queue)
local compiled, topic = unpack(call('HMGET', K.queue(queue_name), F.compiled, F.paused))
call('HSET', K.queue(queue_name), F.compiled, with_topic(compiled, topic))
if kept_out ~= '' then call('HSET', K.queue(queue_name), F.filtered, kept_out) end
call('HDEL', K.queue(queue_name), F.paused, F.rebuild)
call('ZREM', K.rebuilding(), queue_name)
for i = topics_from, #ARGV do
  local name, cursor = string.match(ARGV[i], '^(%S+) (.*)$')
  call('HSET', K.cursors(queue_name), name, cursor)
  if topic == '' then call('ZADD', K.behind(queue_name), 0, name) end
end
add_due(ms, 'dispatch ' .. queue_name, 'NX')
return {0, last}
