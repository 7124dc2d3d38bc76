--- rates: how many messages a queue may deliver now, and each of its groups, and when the next one.
--- @include batch, clock, timetable
-- Included as `rates()`. A rate is a bucket of tokens: a delivery takes one, one comes back each interval, and there are at most as many
-- as the burst, as at first. A bucket is one number (GCRA): when it is full again, in microseconds since V.counted_since; of one
-- that is full there is none. rate: its interval in microseconds, and its burst. now: in microseconds, too.

local function rate_clock()
  return (clock_read.us or clock_ms('') * 1000) - V.counted_since * 1000
end

-- What was written by a clock that is ahead of this one, or for another rate, would keep the bucket empty for too long.
local function bounded_end(rate, full, now)
  return full and math.min(full, now + rate.burst * rate.interval)
end

-- A millionth of a token is what a sum of fractions lacks.
local function number_of_tokens(rate, full, now)
  if not full or full <= now then return rate.burst end
  return math.max(rate.burst - math.ceil((full - now) / rate.interval - 1e-6), 0)
end

-- When there are so many tokens.
local function time_of_tokens(rate, full, number)
  return full - (rate.burst - number) * rate.interval
end

local function end_text(full)
  return string.format('%.3f', full)
end

-- at: when a token is there. Tokens that come in quick succession are waited for together, as far as the bucket holds them.
local function wake_for_tokens(queue, rate, at, now)
  local soonest = now + math.min(V.rate_step, rate.burst * rate.interval)
  add_due(math.ceil(math.max(at, soonest) / 1000) + V.counted_since, 'rates ' .. queue.name, 'LT')
end

-- One that is full is not kept for long.
local function wake_for_full_buckets(queue, full)
  add_due(math.ceil(full / 1000) + V.counted_since, 'rates ' .. queue.name, 'NX')
end

-- How many messages the rate of the whole queue lets it deliver now. Where it is none, the timetable has when one more.
local function tokens_left(queue)
  local rate, now = queue.rate, rate_clock()
  local stored = tonumber(call('ZSCORE', K.rates(queue.name), ''))
  queue.full = bounded_end(rate, stored, now)
  if queue.full ~= stored then call('ZADD', K.rates(queue.name), end_text(queue.full), '') end
  local tokens = number_of_tokens(rate, queue.full, now)
  if tokens == 0 then wake_for_tokens(queue, rate, time_of_tokens(rate, queue.full, 1), now) end
  return tokens
end

-- Of the whole queue, of which `tokens_left` was asked before.
local function take_tokens(queue, count)
  local rate, now = queue.rate, rate_clock()
  queue.full = math.max(queue.full or now, now) + count * rate.interval
  call('ZADD', K.rates(queue.name), end_text(queue.full), '')
  if number_of_tokens(rate, queue.full, now) == 0 then
    wake_for_tokens(queue, rate, time_of_tokens(rate, queue.full, 1), now)
  else
    wake_for_full_buckets(queue, queue.full)
  end
end

-- What was delivered and nobody began with costs nothing. Before the leases are ended, which lets the next ones of a group go.
local function refund_tokens(queue, leases)
  local counts, names, refunds = {[''] = queue.rate and #leases}, {queue.rate and '' or nil}, {}
  for _, lease in ipairs(queue.group_rate and leases or {}) do
    if lease.group then
      if not counts[lease.group] then names[#names + 1] = lease.group end
      counts[lease.group] = (counts[lease.group] or 0) + 1
    end
  end
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    for i, full in ipairs(call('ZMSCORE', K.rates(queue.name), unpack(names, first, last))) do
      local name = names[first + i - 1]
      local rate = name == '' and queue.rate or queue.group_rate
      if full then refunds[#refunds + 1], refunds[#refunds + 2] = end_text(full - counts[name] * rate.interval), name end
    end
  end
  call_in_batches('ZADD', K.rates(queue.name), refunds)
end

-- ms until one more token is there, at least 1; nil: some are. Nothing is changed.
local function time_until_token(rate, full)
  local now = rate_clock()
  full = bounded_end(rate, full, now)
  if number_of_tokens(rate, full, now) > 0 then return nil end
  return math.max(math.ceil((time_of_tokens(rate, full, 1) - now) / 1000), 1)
end

-- The next look is when somebody waits for a token, or the last bucket is full.
local function forget_full_buckets(queue)
  local now, key = rate_clock(), K.rates(queue.name)
  local full = call('ZRANGE', key, '-inf', end_text(now), 'BYSCORE', 'LIMIT', 0, V.batch)
  call_in_batches('ZREM', key, full)
  local last = #full < V.batch and call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if #full == V.batch then last = now end
  if last then wake_for_full_buckets(queue, last) end
end
