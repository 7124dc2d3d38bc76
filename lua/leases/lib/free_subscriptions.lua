--- free_subscriptions: the free subscriptions of one filter of a queue while a dispatch lasts, best first, read in pages as needed.
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

-- What was given a message meanwhile may be worse than what a later page brings.
local function load_free_page(room)
  local page = call('ZRANGE', room.key, room.loaded, room.loaded + 7, 'WITHSCORES')
  room.more = #page == 16
  room.loaded = room.loaded + #page / 2
  for i = 1, #page, 2 do
    room.bound = tonumber(page[i + 1])
    if room.bound >= tonumber(V.bell_score) then
      -- Behind it are bells alone.
      room.bells, room.more = true, false
      return
    end
    room.scores[page[i]] = room.bound
    local subscription = load_subscription(page[i])
    if not subscription then
      -- Somebody removed its hash; what it holds is returned by the lease pass.
      room.stale[#room.stale + 1] = page[i]
    elseif not room.known[page[i]] then
      subscription.score = room.bound + (subscription.set_back or 0)
      room.total = room.total + subscription.max - subscription.leased
      insert_subscription(room.list, subscription)
    end
  end
end

-- own: a subscription with this filter whose room is not saved yet, or nil. Without it, nobody free is one look. Otherwise as many pages
-- are read as give `wanted` places.
local function open_room(name, filter, wanted, own)
  local room = {
    key = K.free(name, filter), filter = filter, list = {}, loaded = 0, total = 0, touched = {}, stale = {},
    known = {[own and own.id or ''] = true}, scores = {},
  }
  load_free_page(room)
  if own and own.leased < own.max then
    own.score = current_score(load_queue(name), own)
    room.total = room.total + own.max - own.leased
    insert_subscription(room.list, own)
  end
  while room.more and room.total < wanted do load_free_page(room) end
  return room
end

-- The least score of all: a page not yet read may hold a better one than what is left of those read. The second value
-- is how many messages in a row are its own: all that it has room for where nobody else is free.
local function best_free(room)
  while room.more and (not room.list[1] or room.list[1].score > room.bound) do load_free_page(room) end
  local subscription = room.list[1]
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

-- Writes what changed: who has as many leases as before, and the score that was read, is left as it is. The pages that were read tell of
-- all who are free where there are no more.
local function close_room(room, queue)
  for _, id in ipairs(room.stale) do call('ZREM', room.key, id) end
  local is_whole = not room.more and not room.bells
  for id, subscription in pairs(room.touched) do
    local leased = subscription.leased
    if queue.turn > 0 then
      call('HSET', K.subscription(id), F.leased, leased, 'turn ' .. queue.name, subscription.turn)
    elseif leased ~= subscription.stored_leased then
      call('HSET', K.subscription(id), F.leased, leased)
    end
    subscription.unsaved, subscription.stored_leased = false, leased
    local known = room.scores[id]
    if leased >= subscription.max then
      if known or not is_whole then call('ZREM', room.key, id) end
    else
      local score = subscription.set_back and fairness_score(queue, subscription, subscription.turn) or subscription.score
      if score ~= known then call('ZADD', room.key, score, id) end
    end
    if subscription.queues ~= queue.name then update_free_everywhere(subscription, queue.name) end
  end
end
