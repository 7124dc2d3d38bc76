--- assume_ownership: own messages of a queue in the place of owners that are out of reach: proxied transfer, the operator's word.
--- ARGV now, queue_name, limit, owners...
--- FAIL UNKNOWN_QUEUE, NOT_PROXIED
--- GIVES {how many are owned here now, how many are owned elsewhere still}
--- FLAGS allow-oom
--- @include clock, fail, ownership_transfer, log_catch_up, dispatch, request_shares
-- The oldest that somebody here is free for, as many as there is room: of `limit` messages that others own one step looks at, the next step goes on.
-- owners: names of instances, or origins. A message may be delivered twice when such an owner comes back, or where two instances do this.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.owner or call('HEXISTS', K.queue(queue_name), F.proxied) == 0 then fail(E.NOT_PROXIED, {queue = queue_name}) end
local plan = queue.sorted and load_plan(queue) or nil
local room, wishes = room_here(queue, plan)
if not may_ask(queue) or room <= 0 then return {0, call('ZCARD', K.remote(queue_name))} end
catch_up_with_logs(queue, ms)
local gone, refs, epochs, names = {}, {}, {}, {}
local barrier, place, last = waiting_barrier(queue), call('HGET', K.queue(queue_name), F.assumed), nil
for i = owners_from, #ARGV do gone[ARGV[i]] = true end
local remote = call('ZRANGE', K.remote(queue_name), place and '(' .. place or '-', barrier and '(' .. barrier or '+', 'BYLEX', 'LIMIT', 0, limit)
for _, ref in ipairs(remote) do
  if #refs == room or plan and plan.spent.work >= V.sort_work then break end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if entry then
    local known, epoch = message_owner().owner_of(queue, ref, entry[2])
    local is_gone = gone[known] or gone[string.match(known, '^(.*)%.') or known]
    if is_gone and is_wanted(plan, wishes, ref, entry[2], ms) then
      refs[#refs + 1], epochs[#epochs + 1] = ref, string.format('%d', epoch + 1)
      names[#names + 1] = topic .. '~' .. message_owner().counting_source(topic, id, entry[2])
    end
  end
  last = ref
end
if last and last ~= remote[#remote] or #remote == tonumber(limit) then
  call('HSET', K.queue(queue_name), F.assumed, last)
else
  call('HDEL', K.queue(queue_name), F.assumed)
end
if refs[1] then
  local own = call('HGET', K.instance(), F.origin)
  note_owners(queue, refs, own, epochs, own)
  move_to_own(queue, refs, ms)
  journal_transfer(queue, refs, own, epochs, names, '', '')
  call('HINCRBY', K.queue(queue_name), F.transferred_in, #refs)
  dispatch_or_defer(queue_name, ms, V.batch)
end
return {#refs, call('ZCARD', K.remote(queue_name))}
