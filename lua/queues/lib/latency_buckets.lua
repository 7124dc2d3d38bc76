--- latency_buckets: how long messages of a queue took, as clients measured some of them: histograms by buckets of time.
-- A field has the number of its bucket of time, what publish to delivery took, and what delivery to acknowledgement took,
-- with `|` between them. A histogram is its sum in microseconds, then an interval and how many fell into it, in turn.
-- Fields are places in rings, as those of K.history(), so that all of it is bounded; `total` has everything since the queue
-- was defined. Python's half is ampsq/base/histogram.py.

local function add_histogram(histogram, text)
  local sum, rest = string.match(text, '^(%d+)([%d ]*)$')
  if not sum then return end
  histogram.sum = histogram.sum + sum
  for interval, count in string.gmatch(rest, ' (%d+) (%d+)') do
    interval = math.min(tonumber(interval), V.latency_intervals - 1)
    histogram[interval] = (histogram[interval] or 0) + count
  end
end

local function histogram_text(histogram)
  local parts = {string.format('%.0f', histogram.sum)}
  for interval = 0, V.latency_intervals - 1 do
    if histogram[interval] then parts[#parts + 1] = interval .. ' ' .. string.format('%.0f', histogram[interval]) end
  end
  return table.concat(parts, ' ')
end

-- Adds what a client measured to what a field has of the same bucket; what it has of an earlier one is over.
local function add_to_bucket(stored, bucket, delivery, handling)
  local of, delivered, handled = string.match(stored or '', '^(%d+)|(.*)|(.*)$')
  local sums = {{sum = 0}, {sum = 0}}
  if of == bucket then
    add_histogram(sums[1], delivered)
    add_histogram(sums[2], handled)
  end
  add_histogram(sums[1], delivery)
  add_histogram(sums[2], handling)
  return bucket .. '|' .. histogram_text(sums[1]) .. '|' .. histogram_text(sums[2])
end

-- Of a queue that was removed meanwhile nothing is kept.
local function add_latencies(queue, delivery, handling, ms)
  if call('EXISTS', K.queue(queue)) == 0 then return end
  local fields, buckets = {'total'}, {'0'}
  for range, length in string.gmatch(V.history_ranges, '(%w+)=(%d+)') do
    local number = math.floor(ms / length)
    fields[#fields + 1] = range .. ' ' .. number % V.history_buckets
    buckets[#buckets + 1] = string.format('%.0f', number)
  end
  local stored, words = call('HMGET', K.latencies(queue), unpack(fields)), {}
  for i, field in ipairs(fields) do
    words[#words + 1] = field
    words[#words + 1] = add_to_bucket(stored[i], buckets[i], delivery, handling)
  end
  call('HSET', K.latencies(queue), unpack(words))
end

-- lines: of each queue its name and two histograms, as a field has them.
local function add_all_latencies(lines, ms)
  for queue, delivery, handling in string.gmatch(lines, '([^|\n]+)|([^|\n]+)|([^|\n]+)') do
    add_latencies(queue, delivery, handling, ms)
  end
end
