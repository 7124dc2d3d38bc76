--- value_order: the order of two values, neither of them NULL or a list.
--- @include arithmetic

-- Whether the first text comes first byte by byte; `<` would ask the server's locale. After some bytes, blocks that are
-- halved find the difference.
local function is_text_below(a, b)
  local x, y = string.byte(a, 1), string.byte(b, 1)
  if x ~= y then return (x or -1) < (y or -1) end
  local at, size, shorter = 2, 64, math.min(#a, #b)
  while at <= shorter do
    if string.sub(a, at, at + size - 1) ~= string.sub(b, at, at + size - 1) then
      while size > 8 do
        size = size / 2
        if string.sub(a, at, at + size - 1) == string.sub(b, at, at + size - 1) then at = at + size end
      end
      for i = at, at + 7 do
        x, y = string.byte(a, i) or -1, string.byte(b, i) or -1
        if x ~= y then return x < y end
      end
    end
    at, size = at + size, math.min(size * 2, 1024)
  end
  return #a < #b
end

-- -1, 0 or 1; nil beside NaN. A string beside a number is the number that it spells, else greater than every number.
local function value_order(d, a, b)
  local kind, other = type(a), type(b)
  if kind == 'string' and other == 'string' then return a == b and 0 or is_text_below(a, b) and -1 or 1 end
  if kind == 'boolean' then a = numeric(d, a) end
  if other == 'boolean' then b = numeric(d, b) end
  if kind == 'string' then
    a = spelled_number(d, a)
    if a == nil then return b == b and 1 or nil end
  elseif other == 'string' then
    b = spelled_number(d, b)
    if b == nil then return a == a and -1 or nil end
  end
  if type(a) == 'table' or type(b) == 'table' then return d.exact.order(a, b) end
  return a < b and -1 or a > b and 1 or a == b and 0 or nil
end

local function is_equal(d, a, b)
  if type(a) == 'string' and type(b) == 'string' then return a == b end
  return value_order(d, a, b) == 0
end
local function is_other(d, a, b) return not is_equal(d, a, b) end
local function is_below(d, a, b) return value_order(d, a, b) == -1 end
local function is_above(d, a, b) return value_order(d, a, b) == 1 end
local function is_not_above(d, a, b) return (value_order(d, a, b) or 1) ~= 1 end
local function is_not_below(d, a, b) return (value_order(d, a, b) or -1) ~= -1 end
