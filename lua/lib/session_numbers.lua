--- session_numbers: numbers of what begins: sessions of publishers and of durable subscriptions, and subscriptions. A later one is
--- higher, also across the death of a server that lost the last ones: none is below the clock, in ms since V.counted_since.
--- @include set_back

local function number_after(last, now)
  last = tonumber(last)
  if last > now - V.counted_since then now = math.max(now, first_behind_loss(now)) end
  return string.format('%.0f', math.max(last + 1, now - V.counted_since))
end

local function next_session(now)
  local session = number_after(tonumber(call('HGET', K.instance(), F.logons) or 0), now)
  call('HSET', K.instance(), F.logons, session)
  return session
end
