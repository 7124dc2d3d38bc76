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

-- limit: most messages to give. own: the subscription whose messages are returned instead of pushed, or ''.
-- Returns heads and bodies of `own`; the second value tells whether more is possible at once.
local function dispatch(name, now, limit, own)
  local room = open_room(name, limit)
  if not room.list[1] then return {}, false end
  local queue = load_queue(name)
  local wanted = math.min(limit, room.total, backlog_left(queue), V.batch)
  local messages = wanted > 0 and next_messages(queue, wanted) or no_messages()
  local refs, deliveries, leases, pushes, given = messages.refs, messages.deliveries, {}, {}, {}
  if #refs == 0 then return given, messages.cut end
  local token = call('HINCRBY', K.queue(name), F.token, #refs) - #refs
  local deadline = queue.lease > 0 and string.format('%.0f', now + queue.lease) or '0'
  local ending = ' ' .. deadline .. ' ' .. queue.lease
  for i = 1, #refs do
    local subscription, ref, delivery = best(room), refs[i], deliveries[i]
    token = token + 1
    local text = string.format('%d', token)
    leases[2 * i - 1] = ref
    leases[2 * i] = text .. ' ' .. subscription.id .. ' ' .. delivery .. ending
    if subscription.id == own then
      given[#given + 1], given[#given + 2] = element_of(name, text, delivery, deadline, ref, messages.fields[i])
    else
      local inbox = pushes[subscription.id] or {}
      pushes[subscription.id] = inbox
      inbox[#inbox + 1], inbox[#inbox + 2] = pushed_element(name, text, delivery, deadline, ref, messages.fields[i])
    end
    give(room, queue, subscription, token)
  end
  write_leases(queue, now, leases, refs)
  close_room(room, queue)
  for id, inbox in pairs(pushes) do call_in_batches('RPUSH', K.inbox(id), inbox) end
  local limited = messages.cut or #refs == math.min(limit, V.batch)
  return given, limited and (room.more or room.total > #refs) and has_waiting(name)
end

-- Work that a bounded call leaves over is the timetable's, so that a caller that dies strands nothing.
local function dispatch_or_defer(name, now, limit, own)
  local given, more = dispatch(name, now, limit, own or '')
  if more then call('ZADD', K.due(), 'NX', now, 'dispatch ' .. name) end
  return given
end
