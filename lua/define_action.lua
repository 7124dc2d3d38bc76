--- define_action: add an action or change it; a new one sees what its queue journals from now on.
--- ARGV version, action, queue_name, definition
--- FAIL CATALOG_CHANGED, UNKNOWN_QUEUE
--- GIVES 1
--- @include fail, catalog
check_catalog(version)
if call('HEXISTS', K.queues(), queue_name) == 0 then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
call('HSET', K.actions(), action, definition)
local last = call('XREVRANGE', K.journal(queue_name), '+', '-', 'COUNT', 1)[1]
call('HSETNX', K.action(action), F.cursor, last and last[1] or '0-0')
call('HSETNX', K.action(action), F.done, 0)
change_catalog()
return 1
