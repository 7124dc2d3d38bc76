--- messagepack_numbers: the numbers of MessagePack; `r` as messagepack.lua has it.

-- Goes on by so many bytes; gives where they begin.
local function pass_bytes(r, size)
  local at = r.at
  r.at = at + size
  if r.at > #r.text + 1 then error(r) end
  return at
end

local function read_unsigned(r, size)
  local at, number = pass_bytes(r, size), 0
  for i = at, r.at - 1 do number = number * 256 + string.byte(r.text, i) end
  return number
end

-- The digits of high * 2^32 + low, 15 of them or more.
local function wide_digits(high, low)
  local words, groups = {math.floor(high / 65536), high % 65536, math.floor(low / 65536), low % 65536}, {}
  for place = 1, 3 do
    local rest = 0
    for i = 1, 4 do
      local part = rest * 65536 + words[i]
      words[i], rest = math.floor(part / 1e7), part % 1e7
    end
    groups[place] = rest
  end
  return (string.gsub(string.format('%d%07d%07d', groups[3], groups[2], groups[1]), '^0+', ''))
end

local function read_wide_integer(r, signed)
  local high, low = read_unsigned(r, 4), read_unsigned(r, 4)
  local negative = signed and high >= 2 ^ 31
  if negative then
    high, low = 2 ^ 32 - 1 - high, 2 ^ 32 - low
    if low == 2 ^ 32 then high, low = high + 1, 0 end
  end
  local size = high * 2 ^ 32 + low
  if r.exact and size >= 2 ^ 53 then return '\1' .. (negative and '-' or '') .. wide_digits(high, low) end
  return negative and -size or size
end

local function read_integer(r, size, signed)
  if size == 8 then return read_wide_integer(r, signed) end
  local number = read_unsigned(r, size)
  return signed and number >= 2 ^ (8 * size - 1) and number - 2 ^ (8 * size) or number
end

-- How a float stands in an exact document: with a point or an exponent; a point alone is NaN.
local function float_mark(number)
  if number ~= number then return '\1.' end
  if number == math.huge or number == -math.huge then return '\1' .. (number < 0 and '-' or '') .. '1e999' end
  local text = string.format('%.17g', number)
  return '\1' .. text .. (string.find(text, '[.e]') and '' or '.0')
end

local function read_float(r, size)
  local bits = read_unsigned(r, 4)
  local part, number = bits % 2 ^ 31, nil
  local unit, most, places, bias = 2 ^ 23, 255, 23, 150
  if size == 8 then unit, most, places, bias = 2 ^ 20, 2047, 52, 1075 end
  local exponent, fraction = math.floor(part / unit), part % unit
  if size == 8 then fraction = fraction * 2 ^ 32 + read_unsigned(r, 4) end
  if exponent == most then
    number = fraction == 0 and math.huge or 0 / 0
  elseif exponent == 0 then
    number = math.ldexp(fraction, 1 - bias)
  else
    number = math.ldexp(fraction + 2 ^ places, exponent - bias)
  end
  if bits >= 2 ^ 31 then number = -number end
  return r.exact and float_mark(number) or number
end
