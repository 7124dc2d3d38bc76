--- plain_dispatch: dispatch for a queue that judges nothing: its next messages to the best free subscription each.
--- @include free_subscriptions, next_messages, handover, deliverable, timetable, bells

-- As `dispatch_queue`.
local function dispatch_plain(queue, now, limit, own)
  local name, front = queue.name, nil
  if queue.is_bare and queue.topic ~= '' and (not own or own.leased < own.max) then
    -- Who takes or acknowledges what comes one by one mostly finds nothing, and then nobody's room matters.
    front = open_front(queue, queue.topic, own and math.min(limit, own.max - own.leased) or 1)
    if not front.entries[1] then
      queue.is_bare = nil
      return {}, false
    end
  end
  local room = open_room(name, V.none, limit, own)
  if not room.list[1] then
    ring_for_rest(queue, room, now, something_waits)
    return {}, false
  end
  local wanted = math.min(limit, room.total, deliveries_left(queue), V.batch)
  if wanted <= 0 then return {}, false end
  local messages, read, bytes, count, as_run = nil, 0, 0, 0, not queue.fated and may_be_run(queue, own)
  -- Past what is not to be delivered here, and in one call past a batch of it: the room may be for one message.
  repeat
    messages, front = next_messages(queue, wanted, nil, as_run, front), nil
    count = number_read(messages)
    if count == 0 then break end
    read, bytes = read + count, bytes + messages.bytes
    if messages.special or queue.fated then
      keep_deliverable(queue, messages, now)
      count = number_read(messages)
    end
  until count > 0 or messages.cut or messages.exhausted or read >= V.batch or bytes >= V.bytes
  local given, leases, pushes, at = {}, {}, {}, 1
  if count == 0 then return given, messages.cut or read > 0 and something_waits(queue) end
  local token = token_before(queue, now)
  local before, deadline = token, deadline_of(queue, now)
  while at <= count do
    local subscription, run = best_free(room)
    run = math.min(run, count - at + 1)
    local mine = subscription == own
    local out = mine and given or pushes[subscription.id] or {}
    if not mine then pushes[subscription.id] = out end
    if messages.entries and mine and count > 1 and run == count then
      local entries = messages.entries
      local head = hand_over_run(queue, refs_of_entries(entries, queue.topic), count, own, token, deadline, out)
      for i = 1, count do out[head + i] = entries[i][2][2] end
    else
      spell_out_entries(messages, queue.topic)
      hand_over(queue, messages, at, at + run - 1, subscription, token, deadline, mine and element_of or pushed_element,
        leases, out)
    end
    token, at = token + run, at + run
    give_to_best(room, queue, subscription, run, token)
  end
  count_deliveries(queue, before, count)
  write_leases(queue, now, leases, messages.refs)
  close_room(room, queue)
  for id, inbox in pairs(pushes) do call_in_batches('RPUSH', K.inbox(id), inbox) end
  ring_for_rest(queue, room, now, something_waits)
  -- What this has seen tells a visit that nothing more is there, where no other queue and no depth keeps something back.
  if own then own.has_all = own.queues == name and queue.depth == 0 and messages.exhausted and not messages.has_others end
  return given, not messages.exhausted and (count < room.total or room.more) and (messages.more or something_waits(queue))
end

-- For calls that come rarely: what a sorted queue has to do is the timetable's, so that these scripts stay small. All that
-- is loaded is looked through by the server's collector of garbage, again and again.
local function dispatch_soon(name, now)
  local queue, more = load_queue(name), true
  if queue.recovering then return end
  if not queue.sorted then
    local _
    _, more = dispatch_plain(queue, now, V.batch, nil)
  end
  if more then add_due(now, 'dispatch ' .. name, 'NX') end
end
