--- dispatch: give waiting messages to free subscriptions. Order is `ready` and cursors, choice is the score in `free`.
--- @include room, waiting, handover, sorting()

local loaded_sorting = {}

-- limit: most messages to give. own: the subscription whose messages are returned instead of pushed, or nil. duty: do
-- also what nobody waits for yet. A sorted queue has its own supply: what has its place, instead of the logs.
-- Returns heads and bodies of `own`; the second value tells whether a limit ended it while there was more to give.
local function dispatch(name, now, limit, own, duty)
  local queue = load_queue(name)
  if queue.sorted then
    loaded_sorting.functions = loaded_sorting.functions or sorting()
    return loaded_sorting.functions.dispatch_sorted(queue, now, limit, own, duty)
  end
  local room = open_room(name, V.none, limit, own)
  if not room.list[1] then return {}, false end
  local wanted = math.min(limit, room.total, backlog_left(queue), V.batch)
  local messages = wanted > 0 and next_messages(queue, wanted) or no_messages()
  local count, given, leases, pushes, at = #messages.refs, {}, {}, {}, 1
  if count == 0 then return given, messages.cut end
  local token = call('HINCRBY', K.queue(name), F.token, count) - count
  local deadline = deadline_of(queue, now)
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
local function dispatch_or_defer(name, now, limit, own, duty)
  local given, more = dispatch(name, now, limit, own, duty)
  if more then call('ZADD', K.due(), 'NX', now, 'dispatch ' .. name) end
  return given, more
end
