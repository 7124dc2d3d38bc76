--- queue_emptiness: whether a queue has no message at all, read or not.
--- @include lease_runs

-- Entries that it has not read count as its messages, though it might keep them out; what a queue with groups has noted beyond its cursor was settled,
-- or is counted elsewhere.
local function has_unread(name)
  local cursors = call('HGETALL', K.cursors(name))
  for i = 1, #cursors, 2 do
    local id, count = string.match(cursors[i + 1], '^(%S+) (%d+)$')
    local info, added, last = redis.pcall('XINFO', 'STREAM', K.log(cursors[i])), 0, '0-0'
    for k = 1, #info, 2 do
      if info[k] == 'entries-added' then added = info[k + 1] end
      if info[k] == 'last-generated-id' then last = info[k + 1] end
    end
    local noted = load_queue(name).listed and call('HLEN', K.ahead(name)) or 0
    if id ~= last and added > tonumber(count) + noted then return true end
  end
  return false
end

local function is_queue_empty(name)
  local fields = call('HMGET', K.queue(name), F.delayed, F.scheduled, F.paused)
  local waiting = call('ZCARD', K.ready(name)) + call('ZCARD', K.sorted(name, V.none)) + call('ZCARD', K.held(name))
    + call('ZCARD', K.remote(name))
  -- One that is being rebuilt finds its messages again.
  if fields[3] or waiting + (fields[1] or 0) + (fields[2] or 0) > 0 then return false end
  return number_leased(name) == 0 and not has_unread(name)
end
