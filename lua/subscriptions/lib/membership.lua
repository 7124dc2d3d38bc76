--- membership: which queues a subscription has, its filter there, and the one backlog over all of them.
--- @include subscription, filter_indexes, fail

-- The least of what it asked for and of the queues' limits; from then on its places are counted against it. One with a bell has no room of
-- its own.
local function refresh_subscription(id)
  local asked, queues, bell = unpack(call('HMGET', K.subscription(id), F.asked, F.queues, F.bell))
  local max = tonumber(asked)
  for name in string.gmatch(queues, '%S+') do max = math.min(max, load_queue(name).room) end
  local room = bell and 0 or max
  call('HSET', K.subscription(id), F.max, room)
  local subscription = load_subscription(id)
  subscription.max, subscription.queues = room, queues
  update_free_everywhere(subscription, nil)
  return max
end

-- former: the subscription that gives up its filter, in its own queues, or nil.
local function check_queues(filter, queues, former)
  for _, name in ipairs(queues) do
    local mine = former and string.find(' ' .. former.queues .. ' ', ' ' .. name .. ' ', 1, true)
    if call('HEXISTS', K.queues(), name) == 0 then fail(E.UNKNOWN_QUEUE, {queue = name}) end
    if filter ~= V.none and load_queue(name).format == 'binary' then fail(E.BINARY_MESSAGES, {queue = name}) end
    if filter ~= V.none and load_queue(name).concurrency then fail(E.GROUPED_QUEUE, {queue = name}) end
    if filter ~= V.none and not has_room_for_filter(name, filter, mine and former.filter) then
      fail(E.TOO_MANY_FILTERS, {queue = name, allowed = V.max_filters})
    end
  end
end

-- A new queue takes the filters of all subscriptions whose pattern has it: ids in ARGV from an index on.
local function check_joining(queue, from)
  local found, number = {}, 0
  for i = from, #ARGV do
    local filter = call('HGET', K.subscription(ARGV[i]), F.filter)
    if filter and not found[filter] then found[filter], number = true, number + 1 end
  end
  if number > V.max_filters then fail(E.TOO_MANY_FILTERS, {queue = queue, allowed = V.max_filters, found = number}) end
end

-- A subscription that ended since its pattern was matched joins nothing.
local function join_queue(id, queue)
  local queues, filter, tree = unpack(call('HMGET', K.subscription(id), F.queues, F.filter, F.tree))
  if not queues or call('SADD', K.members(queue), id) == 0 then return end
  call('HSET', K.subscription(id), F.queues, queues == '' and queue or queues .. ' ' .. queue)
  if filter then join_filter(queue, filter, tree) end
end

local function leave_all_queues(subscription, now)
  for name in string.gmatch(subscription.queues, '%S+') do
    call('ZREM', K.free(name, subscription.filter), subscription.id)
    call('SREM', K.members(name), subscription.id)
    leave_filter(name, subscription.filter, now)
  end
end
