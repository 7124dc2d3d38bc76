--- remove_action: forget an action, what of it failed, and what it tracks.
--- ARGV version, action, heard, queues...
--- FAIL CATALOG_CHANGED
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
-- heard: 1 if any action that is left asks for happenings, else 0. queues: those whose deliveries nobody asks for any more.
check_catalog(version)
if call('HDEL', K.actions(), action) == 0 then return 0 end
-- Sequences and the numbers of failed events stay: under numbers that were used, a later action of this name would look
-- as if it had published before.
for _, field in ipairs(call('HKEYS', K.action(action))) do
  local kind = string.match(field, '^%S+')
  if kind == F.cursor or kind == F.read or kind == F.error then call('HDEL', K.action(action), field) end
end
call('UNLINK', K.failed(action), K.retries(action), K.tracked(action), K.waits(action), K.overdue(action))
call('HDEL', K.keepers(), 'action:' .. action)
if heard == '1' then call('HSET', K.instance(), F.heard, 1) else call('HDEL', K.instance(), F.heard) end
for i = queues_from, #ARGV do call('HDEL', K.queue(ARGV[i]), F.recorded) end
change_catalog()
return 1
