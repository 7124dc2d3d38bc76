--- open_run: leases of what was pushed to the one free subscription of a plain queue: one field in place of a lease each.
-- The field is there only while nothing else of the queue has changed since: whatever else comes to the queue's keys ends it first, by
-- `load_queue` or by the names of its keys (closed_queue), and finds the leases that each push would have written.
-- Scripts that may not write count it in. Only `publish` adds to it (open_run_pushes) and only `settle` takes out of it (open_run_settlement).
-- Text: holder, how many others it is leased, how many at most, weight of its leases in the fairness score, lease period in ms, kind of its
-- elements; how many entries of the log are read, ID of the last one; how many messages, of each a space, ref, token, deadline.

-- Refs and values in turn, as a scan of leases gives them.
local function leases_in_open_run(text)
  local holder, period, messages = string.match(text, '^(%S+) %d+ %d+ %S+ (%d+) %S+ %d+ %S+ %d+(.*)$')
  local found, number = {}, 0
  for ref, token, deadline in string.gmatch(messages, ' (%S+) (%d+) (%d+)') do
    found[number + 1], found[number + 2] = ref, token .. ' ' .. holder .. ' 1 ' .. deadline .. ' ' .. period
    number = number + 2
  end
  return found
end

-- Writes what the pushes would have written one by one, so that all is as if there had been no run.
local function end_open_run(name, text)
  local holder, ratio = string.match(text, '^(%S+) %d+ %d+ (%S+)')
  local leases = leases_in_open_run(text)
  call('HDEL', K.queue(name), F.open_run)
  if leases[1] then
    call('HSET', K.leases(name), unpack(leases))
    local deadline = string.match(leases[2], '(%d+) %d+$')
    if deadline ~= '0' then call('ZADD', K.due(), 'LT', deadline, 'leases ' .. name) end
  end
  local leased, max = unpack(call('HMGET', K.subscription(holder), F.leased, F.max))
  if max and tonumber(leased) < tonumber(max) then call('ZADD', K.free(name, V.none), 'XX', ratio * leased / max, holder) end
end
