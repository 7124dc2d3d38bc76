--- clock: milliseconds now; the argument if a test gives one, else the server's time, read once a script.
local function clock_ms(given)
  if given ~= '' then return tonumber(given) end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
