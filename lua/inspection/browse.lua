--- browse: look through one source of a queue's messages, a bounded number a call; nothing is changed.
--- ARGV now, queue_name, source, after, until_id, filter
--- FAIL UNKNOWN_QUEUE, BINARY_MESSAGES
--- GIVES {`after` of the next call or '', available, ref, fields, deliveries, holder, score, member, ...}
--- FLAGS no-writes, allow-oom
--- @include clock, fail, browse_step
-- source: `ready`, `sorted`, `held`, `leases` or `log <topic>`, that one up to `until_id`. filter: its tree or ''.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if filter ~= '' and queue.format == 'binary' then fail(E.BINARY_MESSAGES, {queue = queue_name}) end
local browse = open_browse(queue, filter)
local topic = string.match(source, '^log (.*)$')
local following
if topic then
  following = browse_log(browse, topic, after, until_id, ms)
elseif source == 'leases' then
  following = browse_leases(browse, after, ms)
else
  local keys = {ready = K.ready(queue_name), sorted = K.sorted(queue_name, V.none), held = K.held(queue_name)}
  following = browse_zset(browse, keys[source], after, ms)
end
return {following, browse.available, unpack(browse.found)}
