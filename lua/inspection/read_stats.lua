--- read_stats: one queue's figures, each from the structure that is the truth about it.
--- ARGV queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES {fields, leased, ready, subscriptions, ahead, sorted, held, remote, topic, unread, cursor, last ID, ...}
--- FLAGS no-writes, allow-oom
--- @include fail, lease_runs
if call('EXISTS', K.queue(queue_name)) == 0 then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local out = {
  call('HGETALL', K.queue(queue_name)), number_leased(queue_name),
  call('ZCARD', K.ready(queue_name)), call('SCARD', K.members(queue_name)), call('HLEN', K.ahead(queue_name)),
  call('ZCARD', K.sorted(queue_name, V.none)), call('ZCARD', K.held(queue_name)), call('ZCARD', K.remote(queue_name)),
}
-- What a queue with groups has listed behind its cursor (lua/queues/lib/listing.lua) is counted as ready, and as `ahead`, which is taken off what is
-- unread.
local listed_to, listed, listed_topic = string.match(call('HGET', K.queue(queue_name), F.listed) or '', '^%d+ %S+ (%d+) (%d+) .* %w+/(.+)$')
local cursors = call('HGETALL', K.cursors(queue_name))
for i = 1, #cursors, 2 do
  local id, count = string.match(cursors[i + 1], '^(%S+) (%d+)$')
  local added, last = 0, '0-0'
  local info = redis.pcall('XINFO', 'STREAM', K.log(cursors[i]))
  for k = 1, #info, 2 do
    if info[k] == 'entries-added' then added = info[k + 1] end
    if info[k] == 'last-generated-id' then last = info[k + 1] end
  end
  if cursors[i] == listed_topic then
    local number = math.max(math.min(listed, listed_to - count - out[5]), 0)
    out[3], out[5] = out[3] + number, out[5] + number
  end
  out[#out + 1] = cursors[i]
  out[#out + 1] = id == last and 0 or added - count
  out[#out + 1] = id
  out[#out + 1] = last
end
return out
