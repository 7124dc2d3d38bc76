--- clock: milliseconds now; the argument if a test gives one, else the server's time, read once a script.
local clock_read = {}

local function clock_ms(given)
  if given ~= '' then
    clock_read.ms = tonumber(given)
    clock_read.us = clock_read.ms * 1000
  else
    local time = call('TIME')
    clock_read.ms = time[1] * 1000 + math.floor(time[2] / 1000)
    clock_read.us = time[1] * 1000000 + time[2]
  end
  return clock_read.ms
end
