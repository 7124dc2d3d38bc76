--- route: the mark of a topic with a key, a lone star before the queues that it feeds: a publish needs no look for it.

local function keeps_records(route)
  return string.sub(route, 1, 2) == '* '
end

local function mark_route(topic, has_key)
  local route = call('HGET', K.routes(), topic)
  if keeps_records(route) ~= has_key then
    call('HSET', K.routes(), topic, has_key and '* ' .. route or string.sub(route, 3))
  end
end
