--- set_back: numbers and IDs that are made of the time rise also where the server's clock was set back.

-- Called where one that was given is ahead of the clock, `ms`. A server that died has lost its last changes, so that it
-- does not know what it gave last, and with the clock set back the time does not keep it from giving that again. So once
-- in each of its processes the instance goes on with more than was lost. That may be lost as well: so it begins with the
-- time of the clock behind it, which is a later one in the next process. Returns the least number that is given now, in ms.
local function first_behind_loss(ms)
  local run, known = string.match(call('INFO', 'server'), 'run_id:(%x+)'), call('HMGET', K.instance(), F.run, F.numbers_from)
  if not run or run == known[1] then return tonumber(known[2] or 0) end
  local last = tonumber(string.match(call('GET', K.clock()) or '0', '^%d+'))
  last = math.max(last, ms) + V.lost_at_most
  call('SET', K.clock(), string.format('%.0f-%.0f', last, math.max(ms - V.counted_since, 0) * 1000))
  local from = last + ms % V.lost_cycle
  call('HSET', K.instance(), F.run, run, F.numbers_from, string.format('%.0f', from))
  return from
end
