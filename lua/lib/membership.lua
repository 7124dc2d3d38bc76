--- membership: which queues a subscription has, and the one backlog over all of them.
--- @include subscription

-- The least of what it asked for and of the queues' limits; from then on its places are counted against it.
local function refresh(id)
  local asked, queues = unpack(call('HMGET', K.subscription(id), F.asked, F.queues))
  local max = tonumber(asked)
  for name in string.gmatch(queues, '%S+') do max = math.min(max, load_queue(name).room) end
  call('HSET', K.subscription(id), F.max, max)
  local subscription = load_subscription(id)
  subscription.max, subscription.queues = max, queues
  place_everywhere(subscription, nil)
  return max
end

-- A subscription that ended since its pattern was matched joins nothing.
local function join(id, queue)
  local queues = call('HGET', K.subscription(id), F.queues)
  if not queues or call('SADD', K.members(queue), id) == 0 then return end
  call('HSET', K.subscription(id), F.queues, queues == '' and queue or queues .. ' ' .. queue)
end
