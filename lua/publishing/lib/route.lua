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

-- The topic feeds the queue no more.
local function unroute(topic, queue)
  local route, kept = call('HGET', K.routes(), topic) or '', {}
  for word in string.gmatch(route, '%S+') do
    if word ~= queue and word ~= '*' .. queue and word ~= '*' then kept[#kept + 1] = word end
  end
  call('HSET', K.routes(), topic, (keeps_records(route) and '* ' or '') .. table.concat(kept, ' '))
end
