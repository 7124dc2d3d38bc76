--- subscription: how much room one has, and its entry in the `free` of its queues.
-- The score there is the fairness model: ratio * leased / max + turn * (token of its last delivery). Equal scores
-- sort by name, and names rise with registration.
-- One with a bell has room while its client takes, and at no other time: its `max` is 0 then. While its bell waits it is in `free`,
-- too, behind all that have room; see bells.lua.
--- @include queue, timetable

local loaded_subscriptions = {}

-- One object a subscription and script, so that everybody counts on the same number of leases. stored_leased: that number as it is stored.
local function load_subscription(id)
  if loaded_subscriptions[id] then return loaded_subscriptions[id] end
  local fields = call('HMGET', K.subscription(id), F.queues, F.max, F.leased, F.filter, F.bell, F.visit)
  if not fields[1] then return nil end
  local subscription = {
    id = id, queues = fields[1], max = tonumber(fields[2]), leased = tonumber(fields[3]), filter = fields[4] or V.none,
    unsaved = false, score = false, stored_leased = false,
  }
  subscription.stored_leased = subscription.leased
  if subscription.max == 0 then subscription.bell, subscription.visit = fields[5], fields[6] end
  loaded_subscriptions[id] = subscription
  return subscription
end

-- The names of its queues; the next call begins with the second, so that a full queue does not starve the others.
local function queues_in_turn(subscription)
  local names = subscription.queues
  local first = string.find(names, ' ', 1, true)
  if first then
    subscription.queues = string.sub(names, first + 1) .. ' ' .. string.sub(names, 1, first - 1)
    call('HSET', K.subscription(subscription.id), F.queues, subscription.queues)
  end
  return names
end

local function fairness_score(queue, subscription, turn)
  return queue.ratio * subscription.leased / subscription.max + queue.turn * turn
end

local function current_score(queue, subscription)
  local turn = 0
  if queue.turn > 0 then
    turn = call('HGET', K.subscription(subscription.id), 'turn ' .. queue.name) or 0
  end
  return fairness_score(queue, subscription, turn)
end

local function update_free(queue, subscription)
  -- While its client visits, nobody else takes of its room; `end_visit` says what stays.
  if subscription.is_visited then return end
  local free = K.free(queue.name, subscription.filter)
  if subscription.leased < subscription.max then
    call('ZADD', free, current_score(queue, subscription), subscription.id)
  elseif subscription.bell == '1' then
    call('ZADD', free, V.bell_score, subscription.id)
  else
    call('ZREM', free, subscription.id)
  end
end

local function update_free_everywhere(subscription, except)
  for name in string.gmatch(subscription.queues, '%S+') do
    if name ~= except then update_free(load_queue(name), subscription) end
  end
end

local function save_leased(subscription)
  subscription.unsaved, subscription.stored_leased = false, subscription.leased
  call('HSET', K.subscription(subscription.id), F.leased, subscription.leased)
end

local function save_subscription(subscription)
  save_leased(subscription)
  update_free_everywhere(subscription, nil)
end

-- A subscription that had no room for its other queues may have it now: those that the caller does not dispatch itself.
local function defer_other_queues(subscription, now, dispatched)
  if subscription.queues == dispatched then return end
  for name in string.gmatch(subscription.queues, '%S+') do
    if not string.find(' ' .. dispatched .. ' ', ' ' .. name .. ' ', 1, true) then
      add_due(now, 'dispatch ' .. name, 'NX')
    end
  end
end

-- freed: {subscription = number of leases that ended}. One that is gone has no room to free. dispatched: the queues that
-- the caller dispatches. own: saved and served by the caller, whose dispatch mostly fills it again.
local function free_room(freed, now, dispatched, own)
  for id, count in pairs(freed) do
    local subscription = load_subscription(id)
    if subscription then
      subscription.leased = subscription.leased - count
      subscription.unsaved = true
      if subscription ~= own then
        save_subscription(subscription)
        defer_other_queues(subscription, now, dispatched)
      end
    end
  end
end
