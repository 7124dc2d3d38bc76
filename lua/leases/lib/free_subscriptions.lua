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

-- One more of those that are free is loaded, or the next page of them is read. room.next_id: what comes next, nil where that is not read;
-- room.bound: its score, from which on all are that are not loaded. What was given a message meanwhile may be worse.
local function load_next_free(room)
  local id, score, page = room.next_id, room.bound, room.waiting
  if id then
    room.waiting_at = room.waiting_at + 2
  else
    page, room.waiting_at = call('ZRANGE', room.key, room.loaded, room.loaded + 7, 'WITHSCORES'), 1
    room.waiting, room.loaded = page, room.loaded + #page / 2
  end
  while room.known[page[room.waiting_at]] do
    room.scores[page[room.waiting_at]], room.waiting_at = tonumber(page[room.waiting_at + 1]), room.waiting_at + 2
  end
  room.next_id = page[room.waiting_at]
  room.more, room.bound = room.next_id ~= nil or #page == 16, tonumber(page[room.waiting_at + 1]) or room.bound
  -- Behind those that have room are bells alone.
  if room.next_id and room.bound >= tonumber(V.bell_score) then room.bells, room.more = true, false end
  if room.next_id then room.scores[room.next_id] = room.bound end
  local subscription = id and load_subscription(id)
  if id and not subscription then
    -- Somebody removed its hash; what it holds is returned by the lease pass.
    room.stale[#room.stale + 1] = id
  elseif id and not room.known[id] then
    subscription.score = score + (subscription.set_back or 0)
    room.total = room.total + subscription.max - subscription.leased
    insert_subscription(room.list, subscription)
  end
end

-- own: a subscription with this filter whose room is not saved yet, or nil. Without it, nobody free is one look. Otherwise as many are loaded
-- as give `wanted` places; others only where they may be the best.
local function open_room(name, filter, wanted, own)
  local room = {
    key = K.free(name, filter), filter = filter, list = {}, loaded = 0, total = 0, touched = {}, stale = {},
    known = {[own and own.id or ''] = true}, scores = {},
  }
  load_next_free(room)
  if own and own.leased < own.max then
    own.score = current_score(load_queue(name), own)
    room.total = room.total + own.max - own.leased
    insert_subscription(room.list, own)
  end
  while room.more and room.total < wanted do load_next_free(room) end
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

-- Writes what changed: who has as many leases as before, and the score that was read, is left as it is. The pages that were read tell of
-- all who are free where there are no more.
local function close_room(room, queue)
  for _, id in ipairs(room.stale) do call('ZREM', room.key, id) end
  local is_whole = not room.more and not room.bells
  for id, subscription in pairs(room.touched) do
    local leased = subscription.leased
    if queue.turn > 0 then
      call('HSET', K.subscription(id), F.leased, leased, 'turn ' .. queue.name, subscription.turn)
    elseif subscription.is_visited then
      -- `end_visit` writes it.
    elseif leased ~= subscription.stored_leased then
      call('HSET', K.subscription(id), F.leased, leased)
    end
    subscription.unsaved, subscription.stored_leased = false, leased
    local known = room.scores[id]
    if subscription.is_visited then
      -- It has no place here but that of its bell.
    elseif leased >= subscription.max then
      if known or not is_whole then call('ZREM', room.key, id) end
    else
      local score = subscription.set_back and fairness_score(queue, subscription, subscription.turn) or subscription.score
      if score ~= known then call('ZADD', room.key, score, id) end
    end
    if subscription.queues ~= queue.name then update_free_everywhere(subscription, queue.name) end
  end
end
