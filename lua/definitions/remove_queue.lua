--- remove_queue: forget a queue and all that it keeps; its messages stay in the logs of its topics.
--- ARGV version, name
--- FAIL CATALOG_CHANGED, QUEUE_IN_USE
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog, route, lease_runs, group_lines
check_catalog(version)
if call('HEXISTS', K.queues(), name) == 0 then return 0 end
local delayed, scheduled = unpack(call('HMGET', K.queue(name), F.delayed, F.scheduled))
local uses = {
  subscriptions = call('SCARD', K.members(name)), leased = number_leased(name),
  -- They stand in the timetable, where they would be taken for those of a later queue of this name.
  delayed = tonumber(delayed or 0) + tonumber(scheduled or 0), rebuilds = call('ZSCORE', K.rebuilding(), name) and 1 or 0,
}
for _, number in pairs(uses) do
  if number > 0 then
    uses.queue = name
    fail(E.QUEUE_IN_USE, uses)
  end
end
for _, topic in ipairs(call('HKEYS', K.cursors(name))) do
  unroute(topic, name)
  call('HDEL', K.retention(), 'log ' .. topic, 'pin ' .. topic)
end
if string.sub(call('HGET', K.routes(), name) or '', 1, 1) == '>' then call('HDEL', K.routes(), name) end
local filters = {V.none}
for _, field in ipairs(call('HKEYS', K.filters(name))) do
  filters[#filters + 1] = string.match(field, '^filter (.+)$')
end
for _, filter in ipairs(filters) do
  call('UNLINK', K.sorted(name, filter), K.free(name, filter))
  call('ZREM', K.due(), 'filter ' .. name .. ' ' .. filter)
end
-- So that a later queue of this name learns again what others say of its messages.
local journals = 'journal ' .. name .. '@'
for _, field in ipairs(call('HKEYS', K.received())) do
  if string.sub(field, 1, #journals) == journals then call('HDEL', K.received(), field) end
end
unlink_lines(name)
call('UNLINK', K.queue(name), K.cursors(name), K.behind(name), K.ahead(name), K.ready(name), K.filters(name),
  K.places(name), K.lives(name), K.held(name), K.events(name), K.leases(name), K.attempts(name), K.remote(name),
  K.owners(name), K.asked(name), K.granted(name), K.journal(name), K.definitions(name), K.rebuilt(name), K.deliveries(name),
  K.progress(name), K.runs(name), K.run_refs(name), K.history(name), K.latencies(name),
  K.groups(name), K.grouped(name), K.listed(name), K.going(name), K.pinned(name),
  K.turns(name), K.rates(name), K.later(name), K.batches(name))
for _, kind in ipairs({'leases', 'dispatch', 'rates', 'affinity', 'expiry', 'read', 'watch'}) do
  call('ZREM', K.due(), kind .. ' ' .. name)
end
call('HDEL', K.retention(), 'journal ' .. name)
call('HDEL', K.queues(), name)
change_catalog()
return 1
