--- bells: subscriptions that have no room: a bell of theirs rings once when messages wait for them.
--- @include free_subscriptions, handover, next_messages
-- A consumer of several instances has one backlog over all of them, so its room goes to where messages are: each call of its
-- client lends it some for that call alone. When such a visit has found all that was there, the bell waits: it rings once, by a mark
-- in a list that the client reads, and is silent until the next visit has found all.

-- All of a room whose bells wait, up to a number: whoever hears it first gets the messages. The mark says when it was. The client of many
-- partitions listens to a channel of each; of few it reads lists, where the mark waits for it. Users whose rules an older release made may
-- not send.
local function ring_bells(room, now)
  for _, id in ipairs(call('ZRANGE', room.key, V.bell_score, '+inf', 'BYSCORE', 'LIMIT', 0, V.bells_rung)) do
    local subscription = load_subscription(id)
    if not subscription then
      call('ZREM', room.key, id)
    elseif subscription.bell == '1' then
      subscription.bell = '0'
      call('HSET', K.subscription(id), F.bell, '0')
      local bell, at = K.bell(id), string.format('%.0f', now)
      if not redis.acl_check_cmd('SPUBLISH', bell, at) or call('SPUBLISH', bell, at) == 0 then call('RPUSH', bell, at) end
      update_free_everywhere(subscription, nil)
    end
  end
end

-- Where nobody has room any more, and `is_left(queue, room)` tells that there is a message for somebody.
local function ring_for_rest(queue, room, now, is_left)
  if room.bells and not room.list[1] and deliveries_left(queue) > 0 and is_left(queue, room) then ring_bells(room, now) end
end

-- Lends a subscription with a bell room for `credits` messages, what it has leased among them, but for no more than `most` more; and for no
-- more than its queues allow. False where it has none, or the visit is late: a later one was here. Nothing of it is written before it ends.
local function begin_visit(subscription, number, credits, most)
  if not subscription.bell or tonumber(number) < tonumber(subscription.visit or 0) then return false end
  local max = math.min(tonumber(credits), subscription.leased + most)
  for name in string.gmatch(subscription.queues, '%S+') do max = math.min(max, load_queue(name).room) end
  subscription.max, subscription.bell, subscription.visit, subscription.is_visited = max, '0', number, subscription.bell
  return true
end

-- Nothing of the room is left. is_done: all that was there was found, if there was room for it, or if its dispatch has seen that nothing more
-- is there: then what it holds is settled without another visit. In `free` it stands while its bell waits.
local function end_visit(subscription, is_done)
  local former = subscription.is_visited
  subscription.bell = is_done and (subscription.leased < subscription.max or subscription.has_all) and '1' or '0'
  subscription.max, subscription.is_visited, subscription.unsaved = 0, nil, false
  subscription.stored_leased = subscription.leased
  call('HSET', K.subscription(subscription.id), F.visit, subscription.visit, F.bell, subscription.bell, F.leased, subscription.leased)
  if subscription.bell ~= former then update_free_everywhere(subscription, nil) end
end
