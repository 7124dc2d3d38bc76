--- explain_facts: facts about a queue and one message of it, in one bounded look.
--- @include ref, judging_plan, message_place, leases, delivery_element, set_rank, unread_messages, message_life, bookmark, message_owner(), lease_runs, group_state(), rates

local function open_look(queue, ms)
  return {queue = queue, ms = ms, facts = {}, plan = load_plan(queue), work = 0}
end

-- Numbers are written whole; what is not there is not told.
local function add_fact(look, name, value)
  if not value then return end
  local number = #look.facts
  look.facts[number + 1] = name
  look.facts[number + 2] = type(value) == 'number' and string.format('%.0f', value) or value
end

-- What is ready behind a barrier that waits is not read before that is sent: it is held, too.
local function find_place_of(look, ref)
  local where, known = where_is(look.queue, ref)
  if where == 'unknown' then where = 'waiting' end
  local barrier = where == 'ready' and call('ZRANGE', K.held(look.queue.name), 0, 0)[1]
  return barrier and barrier < ref and 'held' or where, known
end

-- Of a ref how its message is named.
local function add_name_fact(look, ref)
  if ref then add_fact(look, 'name', ref .. ' ' .. (bookmark_of(ref))) end
end

-- The name of the instance that delivers it, and when it was asked for, ms.
local function add_owner_facts(look, ref, fields)
  local holder, epoch = message_owner().owner_of(look.queue, ref, fields)
  local is_origin = look.queue.owner == V.everywhere or epoch > 0
  add_fact(look, 'owner', is_origin and string.match(holder, '^(.*)%.') or holder)
  add_fact(look, 'asked', call('ZSCORE', K.asked(look.queue.name), ref))
end

local function add_queue_facts(look)
  local name, trees = look.queue.name, look.plan.trees
  add_fact(look, 'now', look.ms)
  add_fact(look, 'definition', call('HGET', K.queues(), name))
  add_fact(look, 'delayed', call('HGET', K.queue(name), F.delayed) or 0)
  add_fact(look, 'scheduled', call('HGET', K.queue(name), F.scheduled) or 0)
  add_fact(look, 'filtered', call('HGET', K.queue(name), F.filtered) or 0)
  add_fact(look, 'leased', number_leased(name))
  add_fact(look, 'ready', call('ZCARD', K.ready(name)))
  add_fact(look, 'sorted', call('ZCARD', K.sorted(name, V.none)))
  add_fact(look, 'held', call('ZCARD', K.held(name)))
  add_fact(look, 'remote', look.queue.owner and call('ZCARD', K.remote(name)))
  local barrier = call('ZRANGE', K.held(name), 0, 0)[1]
  add_fact(look, 'barrier', barrier)
  add_name_fact(look, barrier)
  add_fact(look, 'subscriptions', call('SCARD', K.members(name)))
  add_fact(look, 'dispatch_due', call('ZSCORE', K.due(), 'dispatch ' .. name))
  add_fact(look, 'resort', trees.resort and 1)
  local rate = look.queue.rate
  add_fact(look, 'rate_wait', rate and time_until_token(rate, tonumber(call('ZSCORE', K.rates(name), ''))))
  add_unread_fact(look)
end

-- What the queue's own expressions say of it, each evaluated now. Returns its document, and whether the
-- queue takes it in as a message that has an owner.
local function add_verdict_facts(look, ref, fields)
  local plan, trees = look.plan, look.plan.trees
  local attempts = call('HGET', K.attempts(look.queue.name), ref) or '0'
  local document = document_of(plan, ref, fields, tonumber(string.match(attempts, '^%d+')), look.ms)
  local own, due, addressed = delivery_options_of(fields)
  add_fact(look, 'ends', end_of_life(look.queue, ref, own, due))
  add_fact(look, 'addressed', addressed)
  trees.json = '["n",1]'
  add_fact(look, 'recorded', 1)
  add_fact(look, 'json', judge(plan, 'json', document) and 1 or 0)
  add_fact(look, 'beyond', document.unread)
  add_fact(look, 'body_bytes', document.unread and #document.body)
  add_fact(look, 'body_limit', document.unread and document.limit)
  local enters = not trees.entry or judge(plan, 'entry', document)
  add_fact(look, 'enters', trees.entry and (enters and 1 or 0))
  local is_barrier = trees.barrier and judge(plan, 'barrier', document)
  add_fact(look, 'is_barrier', trees.barrier and (is_barrier and 1 or 0))
  if trees.priority then
    local score, prefix = expression_language().expression_priority(compiled_tree(plan, 'priority'), document)
    look.place = {score = score, member = prefix .. ref}
    add_fact(look, 'priority', string.format('%.17g %s', score, prefix))
  end
  return document, enters and not is_barrier and (not addressed or addressed == look.queue.name)
end

-- Whether it still lies in the inbox: its element is written anew and looked for.
local function add_lease_facts(look, ref, value, entry)
  local lease = parse_lease(value)
  local fields = call('HMGET', K.subscription(lease.holder), F.client, F.tree)
  local beat = call('ZSCORE', K.subscriptions(), lease.holder)
  local deadline, delivery = string.format('%.0f', lease.deadline), string.format('%d', lease.delivery)
  local fields_with_group = entry and group_state().with_group_of_lease(look.queue, entry[2], value)
  local head = entry and pushed_element(look.queue, lease.token, delivery, deadline, ref, fields_with_group)
  local unseen = head and call('LPOS', K.inbox(lease.holder), head, 'MAXLEN', 20000)
  add_fact(look, 'lease', lease.holder .. ' ' .. delivery .. ' ' .. deadline)
  add_fact(look, 'unseen', unseen and 1 or 0)
  add_fact(look, 'client', fields[1])
  add_fact(look, 'tree', fields[2])
  local progress = look.queue.progress and call('HGET', K.progress(look.queue.name), ref)
  local token, report = string.match(progress or '', '^(%d+) (.*)$')
  add_fact(look, 'progress', token == lease.token and report)
  add_fact(look, 'silent', beat and (tonumber(beat) < look.ms and 1 or 0))
end
