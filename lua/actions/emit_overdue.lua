--- emit_overdue: make events of the messages that matched an action's condition for its time; each once.
--- ARGV now, action
--- GIVES how many
--- @include clock, fail
local ms = clock_ms(now)
local bytes, told = 0, 0
for _, member in ipairs(call('ZRANGE', K.waits(action), '-inf', ms, 'BYSCORE', 'LIMIT', 0, V.batch)) do
  local value = call('HGET', K.tracked(action), member)
  local since, id, at = string.match(value, '^(%d+) %d (%S+)\n()')
  local topic, key = string.match(member, '^(%S+) (.*)$')
  local body = string.sub(value, at)
  call('ZREM', K.waits(action), member)
  call('HSET', K.tracked(action), member, since .. ' 1 ' .. id .. '\n' .. body)
  call('XADD', K.overdue(action), '*', F.topic, topic, F.key, key, F.since, since, F.id, id, F.body, body)
  bytes, told = bytes + #value, told + 1
  if bytes >= V.bytes then break end
end
return told
