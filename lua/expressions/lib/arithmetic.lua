--- arithmetic: reading numbers and arithmetic, on doubles first, where that shows no difference from what is exact.
--- @include exact_numbers
-- A document `d` is evaluated with d.exact nil: numbers are doubles below 2^53, whole ones may be integers or floats.
-- Where that would show, error(d) ends the evaluation, and it starts again with d.exact = exact_numbers(): then
-- integers are tables with limbs, and Lua's numbers are floats. Values: nil is NULL, booleans are the integers 1 and 0,
-- tables without limbs are lists, of two elements or more.

-- The number that a text spells, as text, and true if it is an integer's; each pattern reads it once only.
local function number_spelling(text)
  local first = string.byte(text, 1)
  if not first or first > 57 then return nil end
  local word = string.match(text, '^%s*([+-]?[%d.][%d.eE+-]*)%s*$')
  if not word then return nil end
  local whole, rest = string.match(word, '^[+-]?(%d*)(.*)$')
  if rest == '' then return word, true end
  local fraction = ''
  if string.byte(rest, 1) == 46 then fraction, rest = string.match(rest, '^%.(%d*)(.*)$') end
  if whole == '' and fraction == '' then return nil end
  if rest == '' or string.find(rest, '^[eE][+-]?%d+$') then return word, false end
end

-- The number that a text of at most 256 bytes spells, or nil. Once lists are compared, d.spellings keeps what was found.
local function spelled_number(d, text)
  if #text > 256 then return nil end
  local known = d.spellings
  if known and known[text] ~= nil then return known[text] or nil end
  local word, whole = number_spelling(text)
  local number = nil
  if word then
    number = d.exact and whole and d.exact.parse(word) or tonumber(word)
    if not d.exact and (number >= 2 ^ 53 or number <= -2 ^ 53) then error(d) end
  end
  if known then known[text] = number or false end
  return number
end

-- The number that a value counts as; of a list the first element; what spells none is NaN; NULL stays.
local function numeric(d, value)
  local kind = type(value)
  if kind == 'table' and not value.hi then value, kind = value[1], type(value[1]) end
  if kind == 'number' or kind == 'table' or kind == 'nil' then return value end
  if kind == 'string' then return spelled_number(d, value) or 0 / 0 end
  local number = value and 1 or 0
  return d.exact and d.exact.of(number) or number
end

-- The way for all values; `float` says that an operand is known to be no integer.
local function arithmetic(d, op, a, b, float)
  a, b = numeric(d, a), numeric(d, b)
  if a == nil or b == nil then return nil end
  if type(a) == 'table' or type(b) == 'table' then return d.exact.result(op, a, b) end
  local result = float_operation(op, a, b)
  if d.exact or result ~= result then return result end
  if result >= 2 ^ 53 or result <= -2 ^ 53 then error(d) end
  if op == '/' and not float and result % 1 ~= 0 and a % 1 == 0 and b % 1 == 0 then error(d) end
  return result
end

local function compile_arithmetic(op, node, again)
  local x, y = again(node[2]), node[3] and again(node[3])
  if op == 'neg' then
    return function(d)
      local a = numeric(d, x(d))
      if type(a) == 'table' then return d.exact.result('-', d.exact.of(0), a) end
      return a and -a
    end
  end
  local float = node[2][1] == 'd' or node[3][1] == 'd'
  if op == '+' then
    return function(d)
      local a, b = x(d), y(d)
      if type(a) == 'number' and type(b) == 'number' then
        local sum = a + b
        if sum < 2 ^ 53 and sum > -2 ^ 53 then return sum end
      end
      return arithmetic(d, op, a, b, float)
    end
  end
  return function(d) return arithmetic(d, op, x(d), y(d), float) end
end

-- The text of a number, where a string is wanted.
local function float_text(number)
  if number ~= number then return 'nan' end
  local text = string.format('%.15g', number)
  return tonumber(text) == number and text or string.format('%.17g', number)
end

-- The text of a value; of a list the first element; NULL stays.
local function text_of(d, value)
  local kind = type(value)
  if kind == 'table' and not value.hi then value, kind = value[1], type(value[1]) end
  if kind == 'string' or kind == 'nil' then return value end
  if kind == 'boolean' then return value and '1' or '0' end
  if kind == 'table' then return d.exact.text(value) end
  if not d.exact and value % 1 == 0 then error(d) end
  return float_text(value)
end
