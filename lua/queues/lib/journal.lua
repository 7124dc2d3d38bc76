--- journal: one entry for a batch of messages that were settled in the same way; nothing else is durable of a queue.
--- @include batch, timetable, queue, group_state()

-- Who owns what is settled need not be known; at most once it may come back.
local function forget_owners(queue, how, refs)
  if how == V.delivered or how == V.given_back then return end
  local loaded = loaded_queues[queue]
  if loaded and loaded.is_bare or call('EXISTS', K.owners(queue)) == 0 then return end
  call_in_batches('HDEL', K.owners(queue), refs)
end

-- The same with the refs as one text, of messages that were acknowledged; `save_queue` writes how many. queue: as it is loaded.
local function write_acknowledged(queue, text, count, by)
  call('XADD', K.journal(queue.name), '*', F.how, V.acknowledged, F.reason, '', F.refs, text, F.by, by)
  wake_followers()
  queue.acknowledged = string.format('%d', (queue.acknowledged or 0) + count)
  set_later(queue, F.acknowledged, queue.acknowledged)
  if queue.is_bare or call('EXISTS', K.owners(queue.name)) == 0 then return end
  local refs = {}
  for ref in string.gmatch(text, '%S+') do refs[#refs + 1] = ref end
  call_in_batches('HDEL', K.owners(queue.name), refs)
end

-- Counts messages that were settled so. What was noted of the queue before is written first.
local function count_settled(name, how, count)
  local queue = loaded_queues[name]
  if queue then save_queue(queue) end
  local number = call('HINCRBY', K.queue(name), how, count)
  if queue and how == V.acknowledged then queue.acknowledged = number end
end

-- by: the subscription that did it, '' where nobody is named. attempts: of messages that expired, `<deliveries>:<cancels>`
-- each; returns: how each came back before, `-` where it did not; consumer_reason: why, as whoever settled them says. All nil or false where
-- there is nothing to tell.
local function write_journal(queue, how, reason, refs, by, attempts, returns, consumer_reason)
  local entry = {F.how, how, F.reason, reason, F.refs, table.concat(refs, ' ')}
  if by ~= '' then entry[7], entry[8] = F.by, by end
  if attempts then entry[#entry + 1], entry[#entry + 2] = F.attempts, table.concat(attempts, ' ') end
  if returns then entry[#entry + 1], entry[#entry + 2] = F.returns, table.concat(returns, ' ') end
  if consumer_reason then entry[#entry + 1], entry[#entry + 2] = F.consumer_reason, consumer_reason end
  call('XADD', K.journal(queue), '*', unpack(entry))
  wake_followers()
  count_settled(queue, how, #refs)
  forget_owners(queue, how, refs)
  -- What is settled holds its group no more; where it was leased, that ended before.
  local found = load_queue(queue)
  if found and found.concurrency then group_state().unpin(found, refs) end
end

-- The same of what another instance journaled: it says so.
local function write_foreign_journal(queue, told, refs)
  local entry = {F.how, told.how, F.reason, told.reason, F.refs, table.concat(refs, ' ')}
  for _, name in ipairs({F.by, F.attempts, F.returns, F.consumer_reason}) do
    if told[name] ~= '' then entry[#entry + 1], entry[#entry + 2] = name, told[name] end
  end
  if told.late then entry[#entry + 1], entry[#entry + 2] = F.late, '1' end
  local n = #entry
  entry[n + 1], entry[n + 2], entry[n + 3], entry[n + 4] = F.source, told.source, F.path, told.path
  call('XADD', K.journal(queue.name), '*', unpack(entry))
  wake_followers()
  count_settled(queue.name, told.how, #refs)
  forget_owners(queue.name, told.how, refs)
  if queue.concurrency then group_state().unpin(queue, refs) end
end
