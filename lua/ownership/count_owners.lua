--- count_owners: who owns the messages of a queue that this instance does not own, of the oldest ones.
--- ARGV queue_name, limit
--- FAIL UNKNOWN_QUEUE
--- GIVES {how many are owned elsewhere, ready or placed here, usual ms until they are settled, transferred in, out, proxied, told of and not here, oldest ref or '', owner, number, ...}
--- FLAGS no-writes, allow-oom
--- @include fail, queue, ref, message_owner
-- limit: of so many remote messages the owners are counted; each costs a look at its entry.
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local counts, names, deferred = {}, {}, 0
for _, ref in ipairs(queue.owner and call('ZRANGE', K.remote(queue_name), 0, limit - 1) or {}) do
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  local known = entry and (owner_of(queue, ref, entry[2])) or '-'
  if not counts[known] then names[#names + 1] = known end
  counts[known] = (counts[known] or 0) + 1
end
for _, topic in ipairs(call('HKEYS', K.cursors(queue_name))) do deferred = deferred + call('HLEN', K.deferred(topic)) end
local known = call('HMGET', K.queue(queue_name), F.usual, F.transferred_in, F.transferred_out, F.proxied)
local out = {
  call('ZCARD', K.remote(queue_name)), call('ZCARD', K.ready(queue_name)) + call('ZCARD', K.sorted(queue_name, V.none)),
  known[1] or '0', known[2] or '0', known[3] or '0', known[4] or '0', deferred,
  call('ZRANGE', K.remote(queue_name), 0, 0)[1] or '',
}
for _, name in ipairs(names) do out[#out + 1], out[#out + 2] = name, counts[name] end
return out
