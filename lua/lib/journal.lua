--- journal: one entry for a batch of messages that were settled in the same way; nothing else is durable of a queue.
-- by: the subscription that did it, '' where nobody is named. attempts: of messages that expired, `<deliveries>:<cancels>`
-- each; returns: how each came back before, `-` where it did not. Both nil or false where there is nothing to tell.
local function journal(queue, how, reason, refs, by, attempts, returns)
  local entry = {F.how, how, F.reason, reason, F.refs, table.concat(refs, ' ')}
  if by ~= '' then entry[7], entry[8] = F.by, by end
  if attempts then entry[#entry + 1], entry[#entry + 2] = F.attempts, table.concat(attempts, ' ') end
  if returns then entry[#entry + 1], entry[#entry + 2] = F.returns, table.concat(returns, ' ') end
  call('XADD', K.journal(queue), '*', unpack(entry))
  call('HINCRBY', K.queue(queue), how, #refs)
end
