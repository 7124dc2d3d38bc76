--- assume_ownership: own messages of a queue in the place of owners that are out of reach: proxied transfer, the operator's word.
--- ARGV now, queue_name, limit, owners...
--- FAIL UNKNOWN_QUEUE, NOT_PROXIED
--- GIVES {how many are owned here now, how many are owned elsewhere still}
--- FLAGS allow-oom
--- @include clock, fail, ownership_transfer, log_catch_up, dispatch
-- Of what was asked for and not granted, the oldest requests first: that is what somebody here is free for.
-- owners: names of instances, or origins. A message may be delivered twice when such an owner comes back, or where two instances do this.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not queue.owner or call('HEXISTS', K.queue(queue_name), F.proxied) == 0 then fail(E.NOT_PROXIED, {queue = queue_name}) end
if queue.recovering then return {0, call('ZCARD', K.remote(queue_name))} end
catch_up_with_logs(queue, ms)
local gone, refs, epochs, names = {}, {}, {}, {}
local asked = call('ZRANGE', K.asked(queue_name), 0, limit - 1)
local remote = asked[1] and call('ZMSCORE', K.remote(queue_name), unpack(asked))
for i = owners_from, #ARGV do gone[ARGV[i]] = true end
for i, ref in ipairs(asked) do
  local topic, id = parse_ref(ref)
  local entry = remote[i] and call('XRANGE', K.log(topic), id, id)[1]
  if entry then
    local known, epoch = message_owner().owner_of(queue, ref, entry[2])
    if gone[known] or gone[string.match(known, '^(.*)%.') or known] then
      refs[#refs + 1], epochs[#epochs + 1] = ref, string.format('%d', epoch + 1)
      names[#names + 1] = topic .. '~' .. message_owner().counting_source(topic, id, entry[2])
    end
  end
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
