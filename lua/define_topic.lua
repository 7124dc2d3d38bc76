--- define_topic: add a topic and the queues that it feeds.
--- ARGV now, version, topic, definition, queues...
--- FAIL CATALOG_CHANGED, MESSAGE_TYPE_FIXED
--- GIVES 1
--- @include clock, fail, catalog, plain
local ms = clock_ms(now)
check_catalog(version)
-- What is recorded has the type that the topic had.
local function type_of(text)
  local elements = cjson.decode(text)
  return (elements.message_type or '') .. (elements.field_separator or '')
end
local former = call('HGET', K.topics(), topic) or '{}'
if type_of(former) ~= type_of(definition) and call('EXISTS', K.log(topic)) == 1 then
  fail(E.MESSAGE_TYPE_FIXED, {topic = topic})
end
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
