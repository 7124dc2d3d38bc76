--- date_functions: STRFTIME and STRPTIME. An entry is what kinds its arguments are read as (function_calls.lua), and what it does.
--- @include calendar

local function date_writer()
  local days_of_week = {'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'}
  local months = month_names()

  local function cut(a, b) return math.floor(a / b) end

  local function moment(total)
    local days, rest = cut(total, 86400), total % 86400
    local era, place = cut(days + 719468, 146097), (days + 719468) % 146097
    local year = cut(place - cut(place, 1460) + cut(place, 36524) - cut(place, 146096), 365)
    local day_place = place - (365 * year + cut(year, 4) - cut(year, 100))
    local shifted = cut(5 * day_place + 2, 153)
    local month = (shifted + 2) % 12 + 1
    year = era * 400 + year + (month <= 2 and 1 or 0)
    return {total = total, year = year, month = month, day = day_place - cut(153 * shifted + 2, 5) + 1, rest = rest,
      weekday = (days + 4) % 7, day_of_year = days - days_before(year, 1) + 1}
  end

  local function two(number) return string.format('%02d', number) end

  -- By directive, what it writes of a moment.
  local W = {Z = function() return 'UTC' end, z = function() return '+0000' end, ['%'] = function() return '%' end}
  function W.Y(m) return string.format('%04d', m.year) end
  function W.y(m) return two(m.year % 100) end
  function W.m(m) return two(m.month) end
  function W.d(m) return two(m.day) end
  function W.e(m) return string.format('%2d', m.day) end
  function W.H(m) return two(cut(m.rest, 3600)) end
  function W.I(m) return two((cut(m.rest, 3600) - 1) % 12 + 1) end
  function W.M(m) return two(cut(m.rest, 60) % 60) end
  function W.S(m) return two(m.rest % 60) end
  function W.p(m) return m.rest < 43200 and 'AM' or 'PM' end
  function W.j(m) return string.format('%03d', m.day_of_year) end
  function W.A(m) return days_of_week[m.weekday + 1] end
  function W.a(m) return string.sub(days_of_week[m.weekday + 1], 1, 3) end
  function W.B(m) return months[m.month] end
  function W.b(m) return string.sub(months[m.month], 1, 3) end
  function W.s(m) return string.format('%.0f', m.total) end

  local function written(d, form, seconds)
    if d.exact then seconds = d.exact.float(seconds) end
    if not (seconds >= -62167219200 and seconds < 253402300800) then return nil end
    local m = moment(math.floor(seconds))
    return (string.gsub(expanded_form(form), '%%(.)', function(letter) return W[letter] and W[letter](m) end))
  end

  return {'fn', written}
end

local function date_reader()
  -- Digits at most, least and greatest value of each directive that is read as a number.
  local ranges = {Y = {4, 0, 9999}, y = {2, 0, 99}, m = {2, 1, 12}, d = {2, 1, 31}, H = {2, 0, 23}, M = {2, 0, 59},
    S = {2, 0, 59}, j = {3, 1, 366}, s = {12, -62167219200, 253402300799}}

  local months = {}
  for number, name in ipairs(month_names()) do
    months[string.lower(string.sub(name, 1, 3))] = {number = number, name = string.lower(name)}
  end

  local function read_directive(letter, text, place, given)
    if letter == 'b' or letter == 'B' then
      local month = months[string.lower(string.sub(text, place, place + 2))]
      if not month then return nil end
      local size = letter == 'b' and 3 or #month.name
      if letter == 'B' and string.lower(string.sub(text, place, place + size - 1)) ~= month.name then return nil end
      given.m = month.number
      return place + size
    end
    local range = ranges[letter]
    if not range then return nil end
    local sign = letter == 's' and string.byte(text, place) == 45 and '-' or ''
    local digits = string.match(string.sub(text, place + #sign, place + #sign + range[1] - 1), '^%d+')
    if not digits then return nil end
    local value = tonumber(sign .. digits)
    if letter == 'Y' and #digits < 4 or value < range[2] or value > range[3] then return nil end
    if letter == 'y' then letter, value = 'Y', value + (value >= 69 and 1900 or 2000) end
    given[letter] = value
    return place + #sign + #digits
  end

  local function read(d, form, text)
    local given, place, at = {}, 1, 1
    form = expanded_form(form)
    while at <= #form do
      local letter = string.byte(form, at) == 37 and string.sub(form, at + 1, at + 1) or ''
      if letter ~= '' and letter ~= '%' then
        place = read_directive(letter, text, place, given)
        if not place then return nil end
        at = at + 2
      else
        if string.byte(text, place) ~= string.byte(form, at) then return nil end
        place, at = place + 1, at + (letter == '' and 1 or 2)
      end
    end
    local total = place == #text + 1 and seconds_given(given)
    return total and (d.exact and d.exact.of(total) or total) or nil
  end

  return {'ft', read}
end

local function date_functions()
  return {STRFTIME = date_writer(), STRPTIME = date_reader()}
end
