--- free_subscriptions: the free subscriptions of one filter of a queue while a dispatch lasts, best first, read in pages and loaded as needed.
-- set_back: of a subscription that comes behind all others in this call alone, what is added to its score; `free` has it where it was.
--- @include subscription

-- Before what is worse or, among equals, registered later.
local function insert_subscription_from(list, i, subscription)
  local score, id = subscription.score, subscription.id
  while list[i + 1] and (list[i + 1].score < score or list[i + 1].score == score and list[i + 1].id < id) do
    list[i] = list[i + 1]
    i = i + 1
  end
  list[i] = subscription
end

-- From the end, where one that comes from a page mostly stays.
local function insert_subscription(list, subscription)
  local i, score, id = #list, subscription.score, subscription.id
  while i > 0 and (list[i].score > score or list[i].score == score and list[i].id > id) do
    list[i + 1] = list[i]
    i = i - 1
  end
  list[i + 1] = subscription
end

-- What comes next of those that are not loaded: its score, from which on all of them are, and its id where it was read. Behind those that have
-- room are bells alone. reads: another page.
local function look_at_next_free(room, reads)
  if reads then
    room.waiting, room.waiting_at = call('ZRANGE', room.key, room.loaded, room.loaded + 7, 'WITHSCORES'), 1
    room.loaded = room.loaded + #room.waiting / 2
  end
  local page = room.waiting
  while room.known[page[room.waiting_at]] do room.waiting_at = room.waiting_at + 2 end
  local id, score = page[room.waiting_at], tonumber(page[room.waiting_at + 1])
  room.next_id, room.more = id, id ~= nil or #page == 16
  if not id then return end
  room.bound = score
  if score >= tonumber(V.bell_score) then room.bells, room.more = true, false end
end

-- One more of those that are free. What was given a message meanwhile may be worse.
local function load_next_free(room)
  if not room.next_id then return look_at_next_free(room, true) end
  local id, score = room.next_id, room.bound
  room.waiting_at = room.waiting_at + 2
  look_at_next_free(room, false)
  local subscription = load_subscription(id)
  if not subscription then
    -- Somebody removed its hash; what it holds is returned by the lease pass.
    room.stale[#room.stale + 1] = id
  elseif not room.known[id] then
    subscription.score = score + (subscription.set_back or 0)
    room.total = room.total + subscription.max - subscription.leased
    insert_subscription(room.list, subscription)
  end
end

-- How many places there are, `wanted` at most: as many are loaded as give them, others only where they may be the best.
local function places_in_room(room, wanted)
  while room.more and room.total < wanted do load_next_free(room) end
  return math.min(room.total, wanted)
end

-- own: a subscription with this filter whose room is not saved yet, or nil. Without it, nobody free is one look.
local function open_room(name, filter, wanted, own)
  local room = {
    key = K.free(name, filter), filter = filter, list = {}, loaded = 0, total = 0, touched = {}, stale = {},
    known = {[own and own.id or ''] = true},
  }
  look_at_next_free(room, true)
  if own and own.leased < own.max then
    own.score = current_score(load_queue(name), own)
    room.total = room.total + own.max - own.leased
    insert_subscription(room.list, own)
  end
  places_in_room(room, wanted)
  return room
end

-- The least score of all: one that is not loaded may come before all that are. The second value is how many messages in a row are its own:
-- all that it has room for where nobody else is free.
local function best_free(room)
  local subscription = room.list[1]
  while room.more and (not subscription or subscription.score > room.bound
      or subscription.score == room.bound and room.next_id and room.next_id < subscription.id) do
    load_next_free(room)
    subscription = room.list[1]
  end
  if room.more or room.list[2] then return subscription, 1 end
  return subscription, subscription and subscription.max - subscription.leased or 0
end

-- count: messages given to the best subscription in a row. token: of the last one.
local function give_to_best(room, queue, subscription, count, token)
  subscription.leased = subscription.leased + count
  subscription.turn = token
  room.touched[subscription.id] = subscription
  local list = room.list
  if subscription.leased >= subscription.max then
    table.remove(list, 1)
    return
  end
  subscription.score = fairness_score(queue, subscription, token) + (subscription.set_back or 0)
  insert_subscription_from(list, 1, subscription)
end

local function close_room(room, queue)
  for _, id in ipairs(room.stale) do call('ZREM', room.key, id) end
  for id, subscription in pairs(room.touched) do
    subscription.unsaved = false
    if queue.turn > 0 then
      call('HSET', K.subscription(id), F.leased, subscription.leased, 'turn ' .. queue.name, subscription.turn)
    else
      call('HSET', K.subscription(id), F.leased, subscription.leased)
    end
    if subscription.leased >= subscription.max then
      call('ZREM', room.key, id)
    else
      local score = subscription.set_back and fairness_score(queue, subscription, subscription.turn) or subscription.score
      call('ZADD', room.key, score, id)
    end
    if subscription.queues ~= queue.name then update_free_everywhere(subscription, queue.name) end
  end
end
