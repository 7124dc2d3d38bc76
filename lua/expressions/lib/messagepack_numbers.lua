--- messagepack_numbers: the numbers of MessagePack; `r` as messagepack.lua has it.
-- In an exact document a number that a double does not tell whole is `\1`, a sign for its kind and its bytes: few are ever read.

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

-- The digits of an integer of 8 bytes behind its mark.
local function marked_digits(mark)
  local high, low = struct.unpack('>I4I4', mark, 3)
  if string.byte(mark, 2) ~= 45 or high < 2 ^ 31 then return wide_digits(high, low) end
  high, low = 2 ^ 32 - 1 - high, 2 ^ 32 - low
  if low == 2 ^ 32 then high, low = high + 1, 0 end
  return '-' .. wide_digits(high, low)
end

local function read_wide_integer(r, signed)
  local at = pass_bytes(r, 8)
  local high, low = struct.unpack('>I4I4', r.text, at)
  local negative = signed and high >= 2 ^ 31
  if negative then
    high, low = 2 ^ 32 - 1 - high, 2 ^ 32 - low
    if low == 2 ^ 32 then high, low = high + 1, 0 end
  end
  local size = high * 2 ^ 32 + low
  if r.exact and size >= 2 ^ 53 then return (signed and '\1-' or '\1+') .. string.sub(r.text, at, at + 7) end
  return negative and -size or size
end

local function read_integer(r, size, signed)
  if size == 8 then return read_wide_integer(r, signed) end
  local number = read_unsigned(r, size)
  return signed and number >= 2 ^ (8 * size - 1) and number - 2 ^ (8 * size) or number
end

local function read_float(r, size)
  local at = pass_bytes(r, size)
  if r.exact then return (size == 8 and '\1d' or '\1f') .. string.sub(r.text, at, at + size - 1) end
  return (struct.unpack(size == 8 and '>d' or '>f', r.text, at))
end

-- What stands for a number there, as a value; exact: as exact_numbers.lua has it.
local function marked_value(mark, exact)
  local kind = string.byte(mark, 2)
  if kind == 100 or kind == 102 then return (struct.unpack(kind == 100 and '>d' or '>f', mark, 3)) end
  return exact.parse(marked_digits(mark))
end
