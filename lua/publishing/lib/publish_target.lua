--- publish_target: the topic that a name to publish to stands for.
--- @include fail

-- A queue's name stands for its publish target. Returns the topic and its route.
local function target_of(name)
  local route, topic = call('HGET', K.routes(), name), name
  if route and string.sub(route, 1, 1) == '>' then
    topic = string.sub(route, 2)
    route = call('HGET', K.routes(), topic)
  end
  if not route then fail(E.UNKNOWN_TOPIC, {name = name}) end
  return topic, route
end
