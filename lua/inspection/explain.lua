--- explain: where one message of a queue is, with everything that can keep it there; nothing is changed.
--- ARGV now, queue_name, asked
--- FAIL UNKNOWN_QUEUE
--- GIVES {name, value, ...}; `subscription`, `filter`, `holder`, `group_holder` and `topic` may come several times
--- FLAGS no-writes, allow-oom
--- @include clock, fail, explain_facts, explain_groups, explain_subscriptions, messages_before, queue_history
-- asked: a ref, or '' for the head, the message that is to be delivered next.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local look = open_look(queue, ms)
add_queue_facts(look)
local ref = asked ~= '' and asked or next_ref(look)
if not ref then return look.facts end
local topic, id = parse_ref(ref)
local where, known = find_place_of(look, ref)
local entry = call('XRANGE', K.log(topic), id, id)[1]
add_fact(look, 'ref', ref)
add_name_fact(look, ref)
add_fact(look, 'attempts', call('HGET', K.attempts(queue_name), ref))
add_fact(look, 'outside', where == 'settled' and is_before_start(queue_name, topic, id) and 1)
add_fact(look, 'paused', call('HGET', K.queue(queue_name), F.paused) and 1)
add_fact(look, 'recovering', queue.recovering and 1)
local noted = call('HGET', K.ahead(queue_name), ref)
add_fact(look, 'ahead', noted ~= V.delivered and noted)
local last = call('XREVRANGE', K.log(topic), '+', '-', 'COUNT', 1)[1]
add_fact(look, 'last', last and last[1])
local document, is_taken_in
if entry then document, is_taken_in = add_verdict_facts(look, ref, entry[2]) end
-- What the queue has not read has its owner already.
if where == 'waiting' and is_taken_in and is_remote(queue, ref, entry[2]) then where = V.remote end
if entry and where == V.remote then add_owner_facts(look, ref, entry[2]) end
-- What is listed in its group is unread, and waits as what has its place.
local shown = where == 'waiting' and ref <= queue.entered and 'sorted' or where
add_fact(look, 'where', shown or '')
if where == 'leased' then
  add_lease_facts(look, ref, known, entry)
elseif where == 'delayed' or where == 'scheduled' then
  add_fact(look, 'due', known)
elseif where and where ~= 'settled' and where ~= V.remote then
  if entry and queue.concurrency then add_group_facts(look, ref, entry[2], where) end
  if document then add_subscription_facts(look, document) end
  add_filter_facts(look, ref, document)
  add_before_facts(look, ref, where)
  add_holder_facts(look)
end
return look.facts
