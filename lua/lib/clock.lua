--- clock: milliseconds now; the argument if a test gives one, else the server's time, read once a script.
local clock_read = {}

local function clock_ms(given)
  if given ~= '' then
    clock_read.ms = tonumber(given)
  else
    local time = call('TIME')
    clock_read.ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock_read.ms
end
