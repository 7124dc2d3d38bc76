--- define_queue: add a queue or change its definition; its subscriptions take the change at once.
--- ARGV now, version, name, definition, compiled, target, entry, priority, barrier, number, values...
--- FAIL CATALOG_CHANGED, TOO_MANY_FILTERS
--- GIVES 1
--- @include clock, fail, catalog, membership, definition, plain
-- values: `number` topics that feed it, then the subscriptions whose pattern matches its name. entry, priority, barrier:
-- trees of the queue's filter, priority and barrier expression, or ''.
local ms = clock_ms(now)
check_catalog(version)
check_joining(name, values_from + number)
local former = call('HGET', K.queue(name), F.compiled)
call('HSET', K.queues(), name, definition)
call('HSET', K.queue(name), F.compiled, compiled, F.target, target)
call('HSET', K.leases(name), V.anchor, '')
define_sorting(name, entry, priority, barrier)
if former and former ~= compiled and call('HLEN', K.leases(name)) > 1 then
  -- A pass that is under way, and the next one's time, were reckoned with the former lease period.
  call('HDEL', K.queue(name), F.passing)
  call('ZADD', K.due(), ms, 'leases ' .. name)
end
for i = values_from, values_from + number - 1 do
  call('HSETNX', K.topics(), ARGV[i], '{}')
  feed(ARGV[i], name)
end
if name ~= target then call('HSET', K.routes(), name, '>' .. target) end
for i = values_from + number, #ARGV do join(ARGV[i], name) end
for _, id in ipairs(call('SMEMBERS', K.members(name))) do
  refresh(id)
  -- It may have more room now, for its other queues too.
  if former and former ~= compiled then defer_others(load_subscription(id), ms, name) end
end
change_catalog()
dispatch_soon(name, ms)
return 1
