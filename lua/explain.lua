--- explain: where one message of a queue is, with everything that can keep it there; nothing is changed.
--- ARGV now, queue_name, asked
--- FAIL UNKNOWN_QUEUE
--- GIVES {name, value, ...}; `subscription`, `filter`, `holder` and `topic` may come several times
--- FLAGS no-writes, allow-oom
--- @include clock, fail, explain, crowd, before, starts
-- asked: a ref, or '' for the head, the message that is to be delivered next.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local look = open_look(queue, ms)
tell_queue(look)
local ref = asked ~= '' and asked or next_ref(look)
if not ref then return look.facts end
local topic, id = parse_ref(ref)
local where, known = find_place_of(look, ref)
local entry = call('XRANGE', K.log(topic), id, id)[1]
tell(look, 'ref', ref)
tell_name(look, ref)
tell(look, 'attempts', call('HGET', K.attempts(queue_name), ref))
tell(look, 'outside', where == 'settled' and is_before_start(queue_name, topic, id) and 1)
tell(look, 'paused', call('HGET', K.queue(queue_name), F.paused) and 1)
tell(look, 'recovering', queue.recovering and 1)
tell(look, 'ahead', call('HGET', K.ahead(queue_name), ref))
local last = call('XREVRANGE', K.log(topic), '+', '-', 'COUNT', 1)[1]
tell(look, 'last', last and last[1])
local document, is_taken_in
if entry then document, is_taken_in = tell_verdicts(look, ref, entry[2]) end
-- What the queue has not read has its owner already.
if where == 'waiting' and is_taken_in and is_remote(queue, ref, entry[2]) then where = V.remote end
if entry and where == V.remote then tell_owner(look, ref, entry[2]) end
tell(look, 'where', where or '')
if where == 'leased' then
  tell_lease(look, ref, parse_lease(known), entry)
elseif where == 'delayed' or where == 'scheduled' then
  tell(look, 'due', known)
elseif where and where ~= 'settled' and where ~= V.remote then
  if document then tell_subscriptions(look, document) end
  tell_filters(look, ref, document)
  tell_before(look, ref, where)
  tell_holders(look)
end
return look.facts
