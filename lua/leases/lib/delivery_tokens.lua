--- delivery_tokens: the numbers of a queue's deliveries.
-- They rise, and are not below the clock, in microseconds since V.counted_since: so a server that lost its last deliveries gives none of their tokens again.
--- @include queue, set_back

-- Behind it are the next ones. As many as the clock has passed over are told by `skipped`: the others were given.
local function token_before(queue, now)
  local last, before = tonumber(queue.token or 0), (now - V.counted_since) * 1000 - 1
  if last > before + 1000 then before = (first_behind_loss(now) - V.counted_since) * 1000 - 1 end
  return math.max(last, before)
end

-- The `count` tokens behind `before` are given.
local function keep_tokens(queue, before, count)
  local passed = before - (queue.token or 0)
  queue.token = string.format('%d', before + count)
  set_later(queue, F.token, queue.token)
  if passed ~= 0 then
    queue.skipped = string.format('%d', (queue.skipped or 0) + passed)
    set_later(queue, F.skipped, queue.skipped)
  end
  save_queue(queue)
end
