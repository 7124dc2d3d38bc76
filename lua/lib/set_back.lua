--- set_back: the time where the server's clock was set back: numbers and IDs that are made of it rise all the same.

-- Called where one that was given is above `ms`. A server that died has lost its last changes, so that it does not know
-- what it gave last; with the clock set back, time alone does not keep it from giving that again. So once in each of its
-- processes the instance's clock goes on by more than was lost.
local function ms_set_back(ms)
  local last = tonumber(string.match(call('GET', K.clock()) or '0', '^%d+'))
  local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
  if run and run ~= call('HGET', K.instance(), F.run) then
    last = math.max(last, ms) + V.lost_at_most
    call('SET', K.clock(), string.format('%.0f', last) .. '-0')
    call('HSET', K.instance(), F.run, run)
  end
  return math.max(last, ms)
end
