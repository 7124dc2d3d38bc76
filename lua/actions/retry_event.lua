--- retry_event: publish for an event that was set aside, if anything, and write where it is then, unless somebody else did before.
--- ARGV now, action, event, revision, value, at, count, name, body, headers, publisher
--- FAIL UNKNOWN_TOPIC, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES 1, or 0 when it is done, dropped or at another revision
--- @include clock, fail, publish_target, recording
-- value: the event as it is then, '' when nothing is left to do. at: ms of the next try. count: the figure that rises, or ''.
-- name: of the topic, '' to publish nothing. It is recorded by its topic's rules, as by publish: a record of it, too.
local ms = clock_ms(now)
local found = string.match(call('HGET', K.failed(action), event) or '', '^%d+')
if found ~= revision then return 0 end

if name ~= '' then
  local topic, route = target_of(name)
  local shape = headers == '' and 'b' or 'bh'
  local recording = open_recording(topic, route, shape, {body, headers}, 1, 0, 0, publisher, 1, ms)
  push_recorded(recording, (record_messages(recording)))
end
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
