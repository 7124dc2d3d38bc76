--- number_functions: functions of numbers. An entry is what kinds its arguments are read as (function_calls.lua), and what it does.

local function number_functions()
  local N = {}

  -- A float becomes an integer where that fits.
  local function rounded(d, number, cut)
    if type(number) == 'table' or number ~= number or number == 1 / 0 or number == -1 / 0 then return number end
    return d.exact and d.exact.of(cut(number)) or cut(number)
  end

  local function half_away(number)
    local whole = number < 0 and math.ceil(number) or math.floor(number)
    if math.abs(number - whole) < 0.5 then return whole end
    return whole + (number > 0 and 1 or -1)
  end

  local function distance(d, ...)
    local places = {...}
    for i = 1, 4 do
      places[i] = d.exact and d.exact.float(places[i]) or places[i]
      if places[i] - places[i] ~= 0 then return 0 / 0 end
    end
    local one, other = places[1] * math.pi / 180, places[3] * math.pi / 180
    local down = math.sin((places[3] - places[1]) * math.pi / 180 / 2)
    local along = math.sin((places[4] - places[2]) * math.pi / 180 / 2)
    local share = down * down + math.cos(one) * math.cos(other) * along * along
    if not (share >= 0) then return 0 / 0 end
    return 2 * 6371000 * math.asin(math.min(1, math.sqrt(share)))
  end

  N.ABS = {'n', function(_, number)
    if type(number) == 'table' then return {hi = number.hi, lo = number.lo, neg = false} end
    return math.abs(number)
  end}
  N.FLOOR = {'n', function(d, number) return rounded(d, number, math.floor) end}
  N.CEILING = {'n', function(d, number) return rounded(d, number, math.ceil) end}
  N.ROUND = {'n', function(d, number) return rounded(d, number, half_away) end}
  N.GEO_DISTANCE = {'nnnn', distance}

  return N
end
