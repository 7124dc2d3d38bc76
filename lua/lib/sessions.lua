--- sessions: the numbers of publishers' and durable subscriptions' sessions. A later one is higher, also across the death of a
--- server that lost the last ones: none is below the clock, in ms since V.counted_since.

local function next_session(now)
  local last = tonumber(call('HGET', K.instance(), F.logons) or 0)
  local session = string.format('%.0f', math.max(last + 1, now - V.counted_since))
  call('HSET', K.instance(), F.logons, session)
  return session
end
