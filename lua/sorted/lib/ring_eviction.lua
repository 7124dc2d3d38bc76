--- ring_eviction: a queue that keeps its newest messages; each has its place, and as many of the oldest leave as enter beyond the size.
--- @include index_places, next_messages, journal, watchers

-- What entered beyond the size makes as many of the oldest leave, never more: a ring that was made smaller keeps what it has.
-- True when the target depth has room for more by that.
local function evict_oldest(queue, plan)
  local size = tonumber(string.match(plan.trees.ring, '^%d+'))
  local number = math.min(plan.entered, call('ZCARD', K.sorted(queue.name, V.none)) - size)
  if number <= 0 then return false end
  local refs = call('ZRANGE', K.sorted(queue.name, V.none), 0, number - 1)
  remove_from_indexes(queue, refs, refs)
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.evicted, V.ring, refs, '')
  notify_watchers(queue, refs)
  plan.spent.work = plan.spent.work + 2 + #refs / 10
  return queue.depth > 0 and something_waits(queue)
end
