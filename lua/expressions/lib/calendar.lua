--- calendar: what STRFTIME and STRPTIME share: UTC, the years 0 to 9999, English names, no locale.

local function month_names()
  return {'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November',
    'December'}
end

local function expanded_form(form)
  local shorthands = {F = '%Y-%m-%d', T = '%H:%M:%S', D = '%m/%d/%y', R = '%H:%M'}
  return (string.gsub(form, '%%(.)', function(letter) return shorthands[letter] end))
end

-- Days from 1970-01-01 to the first of a month; years that begin in March have their leap day at the end.
local function days_before(year, month)
  local shifted = month < 3 and year - 1 or year
  local era, place = math.floor(shifted / 400), shifted % 400
  local since_march = math.floor((153 * ((month + 9) % 12) + 2) / 5)
  return era * 146097 + place * 365 + math.floor(place / 4) - math.floor(place / 100) + since_march - 719468
end

local function month_length(year, month)
  if month == 12 then return 31 end
  return days_before(year, month + 1) - days_before(year, month)
end

-- Seconds since 1970 of what was read, by directive; nil if there is no such day.
local function seconds_given(given)
  if given.s then return given.s end
  local year, days = given.Y or 1970, nil
  if given.j then
    days = days_before(year, 1) + given.j - 1
    if days >= days_before(year + 1, 1) then return nil end
  else
    local month, day = given.m or 1, given.d or 1
    if day > month_length(year, month) then return nil end
    days = days_before(year, month) + day - 1
  end
  return days * 86400 + (given.H or 0) * 3600 + (given.M or 0) * 60 + (given.S or 0)
end
