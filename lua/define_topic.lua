--- define_topic: add a topic and the queues that it feeds.
--- ARGV now, version, topic, definition, queues...
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include clock, fail, catalog, plain
local ms = clock_ms(now)
check_catalog(version)
call('HSET', K.topics(), topic, definition)
call('HSETNX', K.routes(), topic, '')
-- Another retention is another walk.
call('HDEL', K.retention(), 'log ' .. topic, 'pin ' .. topic)
for i = queues_from, #ARGV do
  feed(topic, ARGV[i], '')
  dispatch_soon(ARGV[i], ms)
end
change_catalog()
return 1
