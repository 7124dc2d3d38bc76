--- trim_bound: up to where a log can be looked at for what nobody needs: not beyond a cursor, and before every hold.
--- @include ref

-- The queues that a topic feeds, as much of each as trimming needs: a thousand whole definitions would take a call's time.
local function fed_queues(topic)
  local route, queues = call('HGET', K.routes(), topic) or '', {}
  if string.sub(route, 1, 1) == '>' then return queues end
  for name in string.gmatch(route, '[^%s*]+') do
    local fields = call('HMGET', K.queue(name), F.sorted, F.compiled)
    queues[#queues + 1] = {name = name, sorted = fields[1], known = fields[2]}
  end
  return queues
end

local function lower_bound(bound, id, last, who)
  local order = order_of(id)
  if bound.order and bound.order <= order then return end
  bound.order, bound.id, bound.last, bound.who = order, id, last, who
end

-- last: an end for XRANGE. What a queue, or the topic's records, have not read is beyond a cursor; a hold needs its own ID, too.
local function open_bound(topic, queues, ms)
  local bound = {last = '+', who = ''}
  for _, queue in ipairs(queues) do
    local id = queue.known and string.match(call('HGET', K.cursors(queue.name), topic) or '', '^%S+') or '0-0'
    -- Mostly all have read as far.
    if id ~= bound.id then lower_bound(bound, id, id, 'queue ' .. queue.name .. ' waiting') end
  end
  local read_to = call('HGET', K.sow(topic), F.read_to)
  if read_to then lower_bound(bound, read_to, read_to, 'records ' .. topic) end
  local holds = call('HGETALL', K.holds(topic))
  for i = 1, #holds, 2 do
    local id, ends = string.match(holds[i + 1], '^(%S+) (%d+)$')
    if ends ~= '0' and tonumber(ends) < ms then
      call('HDEL', K.holds(topic), holds[i])
    else
      lower_bound(bound, id, '(' .. id, holds[i])
    end
  end
  return bound
end
