--- retry_event: publish for an event that was set aside, if anything, and write where it is then, unless somebody else did before.
--- ARGV now, action, event, revision, value, at, count, name, body, headers, publisher
--- FAIL UNKNOWN_TOPIC
--- GIVES 1, or 0 when it is done, dropped or at another revision
--- @include clock, fail, publish_target, entry_ids, fan_out, plain_dispatch
-- value: the event as it is then, '' when nothing is left to do. at: ms of the next try. count: the figure that rises, or ''.
-- name: of the topic, '' to publish nothing. What a queue that judges does with it is left to the timetable.
local ms = clock_ms(now)
local found = string.match(call('HGET', K.failed(action), event) or '', '^%d+')
if found ~= revision then return 0 end

local function publish_it()
  local topic, route = target_of(name)
  local log = K.log(topic)
  local entry = {F.body, body, F.publisher, publisher, F.sequence, 1}
  if headers ~= '' then entry[7], entry[8] = F.headers, headers end
  local first = record_entries(log, ms, 1, 1, function(run, id) return run('XADD', log, id, unpack(entry)) end)
  serve_queues(route, topic, string.match(first, '^%d+'), ms, 1, dispatch_soon)
end

if name ~= '' then publish_it() end
if value == '' then
  call('HDEL', K.failed(action), event)
  call('ZREM', K.retries(action), event)
  call('HDEL', K.action(action), F.counted .. ' failed ' .. event)
  if count ~= '' then call('HINCRBY', K.action(action), count, 1) end
else
  call('HSET', K.failed(action), event, revision + 1 .. ' ' .. value)
  call('ZADD', K.retries(action), at, event)
end
return 1
