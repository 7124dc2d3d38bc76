--- exact_numbers: integers from -2^63 to 2^64-1, exactly; made only where doubles do not do.
--- @include long_integers

-- One operation on two floats.
local function float_operation(op, a, b)
  if op == '+' then return a + b end
  if op == '-' then return a - b end
  if op == '*' then return a * b end
  if b == 0 then return 0 / 0 end
  if op == '/' then return a / b end
  return math.fmod(a, b)
end

local exact_operations = {} -- kept over calls

-- Integers are tables (long_integers.lua), floats are Lua's numbers.
local function exact_numbers()
  local X = exact_operations
  if X.text then return X end
  local digits, of_digits, magnitude_order, add, multiply, divide = long_integer_operations()

  function X.text(i)
    i.text = i.text or (i.neg and '-' or '') .. digits(i)
    return i.text
  end
  function X.of(whole)
    local size = math.abs(whole)
    if size >= 2 ^ 53 then return of_digits(string.format('%.0f', size), whole < 0) end
    local hi = math.floor(size / 1e10)
    return {hi = hi, lo = size - hi * 1e10, neg = whole < 0}
  end
  function X.parse(word)
    local sign = string.byte(word, 1)
    if sign == 43 or sign == 45 then word = string.sub(word, 2) end
    return of_digits(word, sign == 45)
  end
  function X.float(value)
    if type(value) ~= 'table' then return value end
    if not value.float then
      local size = value.hi < 9e5 and value.hi * 1e10 + value.lo
      value.float = size and (value.neg and -size or size) or tonumber(X.text(value))
    end
    return value.float
  end

  function X.result(op, a, b)
    local result
    if type(a) == 'table' and type(b) == 'table' then
      if op == '+' then result = add(a, b, b.neg)
      elseif op == '-' then result = add(a, b, not b.neg)
      elseif op == '*' then result = multiply(a, b)
      else
        local quotient, rest = divide(a, b)
        result = op == '/' and quotient or rest
      end
    end
    -- Beyond the range the result is what floats make of it.
    return type(result) == 'table' and result or float_operation(op, X.float(a), X.float(b))
  end

  -- -1, 0 or 1; nil beside NaN. An integer and a float compare as floats.
  function X.order(a, b)
    if type(a) == 'table' and type(b) == 'table' then
      if a.neg ~= b.neg then return a.neg and -1 or 1 end
      return a.neg and magnitude_order(b, a) or magnitude_order(a, b)
    end
    a, b = X.float(a), X.float(b)
    return a < b and -1 or a > b and 1 or a == b and 0 or nil
  end

  return X
end
