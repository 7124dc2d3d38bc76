--- long_integers: arithmetic on whole numbers of twenty decimal digits, in two limbs of ten: {hi, lo, neg}, neg true below 0.

local function long_integer_operations()
  local base = 1e10

  local function digits(i)
    return i.hi > 0 and string.format('%.0f%010.0f', i.hi, i.lo) or string.format('%.0f', i.lo)
  end

  -- Decimal digits as an integer, or as a float beyond the range.
  local function of_digits(text, neg)
    if #text <= 15 then
      local whole = tonumber(text)
      local hi = math.floor(whole / base)
      return {hi = hi, lo = whole - hi * base, neg = neg and whole > 0}
    end
    local significant = string.byte(text, 1) == 48 and string.match(text, '^0*(.*)$') or text
    if #significant <= 20 then
      local hi, lo = tonumber(string.sub(significant, 1, -11)) or 0, tonumber(string.sub(significant, -10)) or 0
      local top = neg and 922337203 or 1844674407
      if hi < top or hi == top and lo <= (neg and 6854775808 or 3709551615) then
        return {hi = hi, lo = lo, neg = neg and hi + lo > 0}
      end
    end
    return tonumber((neg and '-' or '') .. text)
  end

  local function carried(hi, lo, neg)
    if lo < 0 then hi, lo = hi - 1, lo + base end
    if lo >= base then hi, lo = hi + 1, lo - base end
    if hi < 9e8 then return {hi = hi, lo = lo, neg = neg and hi + lo > 0} end
    return of_digits(string.format('%.0f%010.0f', hi, lo), neg)
  end

  local function magnitude_order(a, b)
    if a.hi ~= b.hi then return a.hi < b.hi and -1 or 1 end
    return a.lo < b.lo and -1 or a.lo > b.lo and 1 or 0
  end

  local function add(a, b, neg)
    if a.neg == neg then return carried(a.hi + b.hi, a.lo + b.lo, neg) end
    if magnitude_order(a, b) < 0 then a, b, neg = b, a, neg else neg = a.neg end
    return carried(a.hi - b.hi, a.lo - b.lo, neg)
  end

  -- Limbs of five digits, the lowest first, so that no product loses any.
  local function limbs(i)
    return {i.lo % 1e5, math.floor(i.lo / 1e5), i.hi % 1e5, math.floor(i.hi / 1e5)}
  end

  local function multiply(a, b)
    local x, y, text, carry = limbs(a), limbs(b), {}, 0
    for place = 2, 9 do
      for i = math.max(1, place - 4), math.min(4, place - 1) do carry = carry + x[i] * y[place - i] end
      text[10 - place] = string.format('%05.0f', carry % 1e5)
      carry = math.floor(carry / 1e5)
    end
    return of_digits(table.concat(text), (a.neg or false) ~= (b.neg or false))
  end

  -- By hand, digit for digit: quotient truncated toward zero, and the rest with the sign of the first.
  local function divide(a, b)
    if b.hi + b.lo == 0 then return 0 / 0, 0 / 0 end
    local rest, quotient = {hi = 0, lo = 0}, {}
    for digit in string.gmatch(digits(a), '%d') do
      local lo = rest.lo * 10 + digit
      local over = math.floor(lo / base)
      rest.hi, rest.lo = rest.hi * 10 + over, lo - over * base
      local times = 0
      while magnitude_order(rest, b) >= 0 do
        rest.hi, rest.lo, times = rest.hi - b.hi, rest.lo - b.lo, times + 1
        if rest.lo < 0 then rest.hi, rest.lo = rest.hi - 1, rest.lo + base end
      end
      quotient[#quotient + 1] = times
    end
    rest.neg = a.neg and rest.hi + rest.lo > 0
    return of_digits(table.concat(quotient), (a.neg or false) ~= (b.neg or false)), rest
  end

  return digits, of_digits, magnitude_order, add, multiply, divide
end
