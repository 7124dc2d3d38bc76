--- clock: milliseconds now; the argument if a test gives one, else the server's time, read once a script.
local clock_read = {}

local function clock_ms(given)
  if given ~= '' then
    clock_read.ms = tonumber(given)
    clock_read.us = clock_read.ms * 1000
  else
    local time = call('TIME')
    local seconds, microseconds = tonumber(time[1]), tonumber(time[2])
    clock_read.ms = seconds * 1000 + math.floor(microseconds / 1000)
    clock_read.us = seconds * 1000000 + microseconds
  end
  return clock_read.ms
end
