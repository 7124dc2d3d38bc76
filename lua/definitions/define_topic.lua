--- define_topic: add a topic and the queues that it feeds, and say whether it keeps records.
--- ARGV now, version, topic, definition, life, paths, format, queues...
--- FAIL CATALOG_CHANGED, MESSAGE_TYPE_FIXED, PARTITION_BY_FIXED
--- GIVES the version of the catalog with it
--- @include clock, fail, catalog, plain_dispatch, route, timetable
-- paths: as `compile_key` takes them; '' of a topic without a key. life: ms, 0 without a limit. format: of
-- bodies, as body_formats.lua takes it, '' of JSON. By another key or format the records are made anew of what the log has, in steps that the timetable begins.
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
-- What is recorded is in the partitions that the topic's definition chose.
local function partition_by(text)
  local elements = cjson.decode(text)
  return table.concat(elements.partition_by or elements.key or {}, '\n')
end
if partition_by(former) ~= partition_by(definition)
  and call('HEXISTS', K.instance(), F.partition) == 1 and call('EXISTS', K.log(topic)) == 1 then
  fail(E.PARTITION_BY_FIXED, {topic = topic})
end
call('HSET', K.topics(), topic, definition)
call('HSETNX', K.routes(), topic, '')
mark_route(topic, paths ~= '')
local kept = call('HMGET', K.sow(topic), F.paths, F.format)
if (kept[1] or '') ~= paths or (kept[2] or '') ~= format then
  call('UNLINK', K.sow(topic), K.records(topic), K.ends(topic))
  call('ZREM', K.due(), 'records ' .. topic)
  if paths ~= '' then
    call('HSET', K.sow(topic), F.paths, paths, F.format, format, F.read_to, '0-0')
    if call('EXISTS', K.log(topic)) == 1 then add_due(ms, 'records ' .. topic) end
  end
end
if paths ~= '' then call('HSET', K.sow(topic), F.life, life) end
-- Another retention is another walk.
call('HDEL', K.retention(), 'log ' .. topic, 'pin ' .. topic)
for i = queues_from, #ARGV do
  feed_queue(topic, ARGV[i], '')
  dispatch_soon(ARGV[i], ms)
end
return change_catalog()
