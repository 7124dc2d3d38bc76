--- watch: let a queue tell from now on which messages' availability may have changed.
--- ARGV queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES the last ID of its events
--- @include fail
if call('HEXISTS', K.queues(), queue_name) == 0 then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
call('HSET', K.queue(queue_name), F.watched, 1)
local last = call('XREVRANGE', K.events(queue_name), '+', '-', 'COUNT', 1)[1]
return last and last[1] or '0-0'
