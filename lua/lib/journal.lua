--- journal: one entry for a batch of messages that were settled in the same way; nothing else is durable of a queue.
local function journal(queue, how, reason, refs)
  call('XADD', K.journal(queue), '*', F.how, how, F.reason, reason, F.refs, table.concat(refs, ' '))
  call('HINCRBY', K.queue(queue), how, #refs)
end
