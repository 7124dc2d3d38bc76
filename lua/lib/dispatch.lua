--- dispatch: give waiting messages to free subscriptions. Order is `ready` and cursors, choice is the score in `free`.
--- @include room, waiting, element, batch

-- The whole queue's limit; the anchor field is no lease.
local function backlog_left(queue)
  if queue.backlog == 0 then return V.batch end
  return queue.backlog - math.max(call('HLEN', K.leases(queue.name)) - 1, 0)
end

local function write_leases(queue, now, leases, refs)
  call_in_batches('HSET', K.leases(queue.name), leases)
  if queue.lease > 0 then call('ZADD', K.due(), 'LT', now + queue.lease, 'leases ' .. queue.name) end
  if queue.once then journal(queue.name, V.delivered, '', refs) end
end

-- Messages `from` to `to` for one subscription: their leases, and their heads and bodies at the end of `out`.
local function hand_over(queue, messages, from, to, subscription, token, deadline, make, leases, out)
  local refs, fields, deliveries, format = messages.refs, messages.fields, messages.deliveries, string.format
  local holder, ending, number = ' ' .. subscription.id .. ' ', ' ' .. deadline .. ' ' .. queue.lease, #out
  for i = from, to do
    token = token + 1
    local text, ref, delivery = format('%d', token), refs[i], deliveries[i]
    leases[2 * i - 1], leases[2 * i] = ref, text .. holder .. delivery .. ending
    out[number + 1], out[number + 2] = make(queue.name, text, delivery, deadline, ref, fields[i])
    number = number + 2
  end
end

-- limit: most messages to give. own: the subscription whose messages are returned instead of pushed, or nil.
-- Returns heads and bodies of `own`; the second value tells whether a limit ended it while there was more to give.
local function dispatch(name, now, limit, own)
  local room = open_room(name, limit, own)
  if not room.list[1] then return {}, false end
  local queue = load_queue(name)
  local wanted = math.min(limit, room.total, backlog_left(queue), V.batch)
  local messages = wanted > 0 and next_messages(queue, wanted) or no_messages()
  local count, given, leases, pushes, at = #messages.refs, {}, {}, {}, 1
  if count == 0 then return given, messages.cut end
  local token = call('HINCRBY', K.queue(name), F.token, count) - count
  local deadline = queue.lease > 0 and string.format('%.0f', now + queue.lease) or '0'
  while at <= count do
    local subscription, run = best(room)
    run = math.min(run, count - at + 1)
    local mine = subscription == own
    local out = mine and given or pushes[subscription.id] or {}
    if not mine then pushes[subscription.id] = out end
    hand_over(queue, messages, at, at + run - 1, subscription, token, deadline, mine and element_of or pushed_element,
      leases, out)
    token, at = token + run, at + run
    give(room, queue, subscription, run, token)
  end
  write_leases(queue, now, leases, messages.refs)
  close_room(room, queue)
  for id, inbox in pairs(pushes) do call_in_batches('RPUSH', K.inbox(id), inbox) end
  return given, not messages.exhausted and (count < room.total or room.more) and something_waits(queue)
end

-- Work that a bounded call leaves over is the timetable's, so that a caller that dies strands nothing.
local function dispatch_or_defer(name, now, limit, own)
  local given, more = dispatch(name, now, limit, own)
  if more then call('ZADD', K.due(), 'NX', now, 'dispatch ' .. name) end
  return given
end
