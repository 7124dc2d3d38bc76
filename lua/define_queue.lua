--- define_queue: add a queue or change its definition; its subscriptions take the change at once.
--- ARGV now, version, name, definition, compiled, target, number, values...
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include clock, fail, catalog, membership, dispatch
-- values: `number` topics that feed it, then the subscriptions whose pattern matches its name.
local ms = clock_ms(now)
check_catalog(version)
call('HSET', K.queues(), name, definition)
call('HSET', K.queue(name), F.compiled, compiled, F.target, target)
call('HSET', K.leases(name), V.anchor, '')
for i = values_from, values_from + number - 1 do
  call('HSETNX', K.topics(), ARGV[i], '{}')
  feed(ARGV[i], name)
end
if name ~= target then call('HSET', K.routes(), name, '>' .. target) end
for i = values_from + number, #ARGV do join(ARGV[i], name) end
for _, id in ipairs(call('SMEMBERS', K.members(name))) do refresh(id) end
change_catalog()
dispatch_or_defer(name, ms, V.batch)
return 1
