--- deduplication: the IDs under which messages of a topic were published, each for as long as its window lasts.
--- @include batch, timetable

-- Forgets windows that are over, `most` of them, the earliest first. Returns whether there may be more.
local function end_windows(topic, ms, most)
  local over = call('ZRANGE', K.windows(topic), '-inf', ms, 'BYSCORE', 'LIMIT', 0, most)
  call_in_batches('ZREM', K.windows(topic), over)
  call_in_batches('HDEL', K.deduplicated(topic), over)
  return #over == most
end

-- The sweep ends the next window when it is over.
local function schedule_windows(topic, ms)
  local first = call('ZRANGE', K.windows(topic), 0, 0, 'WITHSCORES')
  if first[1] then add_due(math.max(tonumber(first[2]), ms + V.due_period), 'windows ' .. topic) end
end
