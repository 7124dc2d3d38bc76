--- begin_rebuild: begin to rebuild a queue: from now on it reads no log, and everything in its logs waits until the rebuild ends.
--- ARGV now, queue_name, owner, period, changed, topics...
--- FAIL UNKNOWN_QUEUE, REBUILDING
--- GIVES {1 if it is a ring else 0, last ID of the topic's log, entries ever added, ...}, in the order of the topics
--- FLAGS allow-oom
--- @include clock, fail, paused_queue, history_notes
-- topics: each with the cursor where the queue begins. changed: 1 if its recovery point is another one, so that this is noted.
-- owner: who rebuilds it; after `period` ms without a step somebody else may begin anew.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local rebuilder, deadline = rebuilder_of(queue_name)
if rebuilder and rebuilder ~= owner and tonumber(deadline) > ms and tonumber(deadline) < ms + 3600000 then
  fail(E.REBUILDING, {queue = queue_name})
end
local starts, ends = {}, {call('HEXISTS', K.filters(queue_name), F.ring)}
for i = topics_from, #ARGV do
  local topic, cursor = string.match(ARGV[i], '^(%S+) (.*)$')
  call('HSET', K.cursors(queue_name), topic, cursor)
  starts[#starts + 1], starts[#starts + 2] = topic, string.match(cursor, '^%S+')
  local info, last, added = redis.pcall('XINFO', 'STREAM', K.log(topic)), '0-0', 0
  for k = 1, #info, 2 do
    if info[k] == 'last-generated-id' then last = info[k + 1] end
    if info[k] == 'entries-added' then added = info[k + 1] end
  end
  ends[#ends + 1], ends[#ends + 2] = last, added
end
-- Sent again after a lost reply, it was noted before.
if changed == '1' and rebuilder ~= owner then note_start(queue_name, starts) end
local compiled = call('HGET', K.queue(queue_name), F.compiled)
call('HSETNX', K.queue(queue_name), F.paused, queue.topic)
call('HSET', K.queue(queue_name), F.compiled, paused_form(compiled))
call('HSET', K.leases(queue_name), V.anchor, '')
call('UNLINK', K.rebuilt(queue_name))
-- What is listed becomes ready by the log; the lists are void.
call('HDEL', K.queue(queue_name), F.listed)
call('UNLINK', K.listed(queue_name))
keep_rebuilding(queue_name, owner, ms + period)
return ends
