--- journal: one entry for a batch of messages that were settled in the same way; nothing else is durable of a queue.
-- attempts: of messages that expired, `<deliveries>:<cancels>` each; else nil.
local function journal(queue, how, reason, refs, attempts)
  if attempts then
    call('XADD', K.journal(queue), '*', F.how, how, F.reason, reason, F.refs, table.concat(refs, ' '),
      F.attempts, table.concat(attempts, ' '))
  else
    call('XADD', K.journal(queue), '*', F.how, how, F.reason, reason, F.refs, table.concat(refs, ' '))
  end
  call('HINCRBY', K.queue(queue), how, #refs)
end
