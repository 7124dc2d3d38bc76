--- set_proxied_transfer: enable or disable proxied transfer of a queue: whether this instance may act for owners that are out of reach.
--- ARGV queue_name, enabled
--- FAIL UNKNOWN_QUEUE
--- GIVES 1
--- FLAGS allow-oom
--- @include fail
-- enabled: 1 or 0.
if call('EXISTS', K.queue(queue_name)) == 0 then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if enabled == '1' then call('HSET', K.queue(queue_name), F.proxied, 1) else call('HDEL', K.queue(queue_name), F.proxied) end
return 1
