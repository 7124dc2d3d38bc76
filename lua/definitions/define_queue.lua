--- define_queue: add a queue or change its definition; its subscriptions take the change at once.
--- ARGV now, version, name, definition, target, compiled, policy, entry, priority, barrier, ring, record, owner, domain, deferral, grouping, rated, number, values...
--- FAIL CATALOG_CHANGED, TOO_MANY_FILTERS, QUEUE_NOT_EMPTY, GROUPED_QUEUE
--- GIVES the version of the catalog with it
--- @include clock, fail, catalog, membership, queue_sorting, paused_queue, history_notes, plain_dispatch, queue_ownership, queue_grouping, recovery, journal_start, timetable, lease_runs
-- values: `number` topics that feed it, each with the cursor where a new queue begins, if that is not its first entry (or
-- `now`), then the subscriptions whose pattern matches its name. entry, priority, barrier: trees of the queue's filter,
-- priority and barrier expression, or ''. policy: numbers, or '' where all are as by default. ring: its size, or ''.
-- grouping, rated: see definitions/lib/queue_grouping, '' of a queue without groups, without rates.
-- record: 1 if its deliveries are recorded, else 0. owner, domain: see definitions/lib/queue_ownership. deferral: ms, or '' for the default.
local ms = clock_ms(now)
check_catalog(version)
check_joining(name, values_from + number)
if grouping ~= '' then check_filters_of(name, values_from + number) end
local former, former_policy, paused = unpack(call('HMGET', K.queue(name), F.compiled, F.policy, F.paused))
if former then
  check_ownership(name, owner, domain)
  check_grouping(name, grouping)
end
if paused then compiled = paused_form(compiled) end
if former then note_former_filter(name, call('HGET', K.filters(name), F.entry) or '', entry) end
call('HSET', K.queues(), name, definition)
call('HSET', K.queue(name), F.compiled, compiled, F.target, target)
call('HSET', K.leases(name), V.anchor, '')
if record == '1' then call('HSET', K.queue(name), F.recorded, 1) else call('HDEL', K.queue(name), F.recorded) end
define_ownership(name, owner, domain, deferral)
-- What earlier incarnations of this instance settled of it is told by others.
if not former and owner ~= '' and call('EXISTS', K.received()) == 1 and names_of_instance().former[1] then
  call('HSET', K.queue(name), F.recovering, 0)
  note_recovery(ms)
end
if not former then begin_journal(name) end
define_policy(name, policy)
local life_changed = (former_policy or '') ~= policy
define_ring(name, ring, not former)
define_grouping(name, grouping, define_rates(name, rated), ms)
define_sorting(name, entry, priority, barrier, life_changed)
if life_changed then expire_anew(load_queue(name)) end
if former and former ~= compiled and number_leased(name) > 0 then
  -- A pass that is under way, and the next one's time, were reckoned with the former lease period.
  call('HDEL', K.queue(name), F.passing)
  add_due(ms, 'leases ' .. name)
end
local starts = {}
for i = values_from, values_from + number - 1 do
  local topic, place = string.match(ARGV[i], '^(%S+) ?(.*)$')
  call('HSETNX', K.topics(), topic, '{}')
  local id = string.match(feed_queue(topic, name, place) or '', '^%S+')
  if not former and call('EXISTS', K.log(topic)) == 1 then add_due(ms, 'expiry ' .. name, 'NX') end
  if id and id ~= '0-0' then starts[#starts + 1], starts[#starts + 2] = topic, id end
end
note_start(name, starts)
if name ~= target then call('HSET', K.routes(), name, '>' .. target) end
for i = values_from + number, #ARGV do join_queue(ARGV[i], name) end
for _, id in ipairs(call('SMEMBERS', K.members(name))) do
  refresh_subscription(id)
  -- It may have more room now, for its other queues too.
  if former and former ~= compiled then defer_other_queues(load_subscription(id), ms, name) end
end
dispatch_soon(name, ms)
return change_catalog()
