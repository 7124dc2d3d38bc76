--- comparison: comparisons, which hold for any pair of elements where there are lists.
--- @include value_order, evaluation_steps

-- What of a list tells that a test holds for none of its elements, without trying each: the greatest for `below`, the
-- least for `above`, all of them for `equal`; and the one type that they have. nil where types are mixed.
local function summary_of(d, list, test_kind)
  local kind, found = type(list[1]), list[1]
  if kind ~= 'string' and (kind ~= 'number' or d.exact) then return nil end
  if test_kind == 'equal' then found = {} end
  for i = 1, #list do
    local element = list[i]
    if type(element) ~= kind then return nil end
    if test_kind == 'equal' then
      found[element] = true
    elseif value_order(d, element, found) == (test_kind == 'below' and 1 or -1) then
      found = element
    end
  end
  return kind, found
end

-- The elements' texts, made once for all pairs.
local function texts_of(d, list)
  local texts = {}
  for i = 1, #list do texts[i] = text_of(d, list[i]) end
  return texts
end

local function longest_size(value)
  if type(value) == 'string' then return #value end
  local longest = 0
  for i = 1, type(value) == 'table' and #value or 0 do
    if type(value[i]) == 'string' then longest = math.max(longest, #value[i]) end
  end
  return longest
end

-- Whether the test holds for any pair; NULL makes it NULL. Pairs cost steps where there is a list, and long texts do
-- where more than their equality is asked.
local function any_pair(d, a, b, test, test_kind)
  if a == nil or b == nil then return nil end
  local many, more = type(a) == 'table' and not a.hi, type(b) == 'table' and not b.hi
  local cost = 0
  if test_kind == 'text' or test_kind == 'below' or test_kind == 'above' then
    if (many or type(a) == 'string' and #a >= 64) and (more or type(b) == 'string' and #b >= 64) then
      cost = math.floor(math.min(longest_size(a), longest_size(b)) / 64)
    end
  end
  if not many and not more then
    if cost > 0 then spend_steps(cost) end
    return test(d, a, b)
  end
  cost = cost + 12
  if not many then a = {a} end
  if not more then b = {b} end
  d.spellings = d.spellings or {}
  local kind, summary
  if test_kind == 'text' or test_kind == 'part' then
    a, b = texts_of(d, a), texts_of(d, b)
  elseif test_kind and #a > 3 and #b > 3 then
    kind, summary = summary_of(d, b, test_kind)
  end
  for i = 1, #a do
    local element = a[i]
    if kind == nil or type(element) ~= kind or test_kind == 'equal' and summary[element]
      or test_kind ~= 'equal' and test(d, element, summary) then
      for j = 1, #b do
        spend_steps(cost)
        if test(d, element, b[j]) then return true end
      end
    else
      spend_steps(cost * #b)
    end
  end
  return false
end

local function compile_comparison(op, node, again)
  local x, y = again(node[2]), again(node[3])
  local test_kind = (op == '<' or op == '<=') and 'below' or 'above'
  local swap, negated = op == '>' or op == '<=', op == '<=' or op == '>='
  if op == '=' or op == '!=' then
    local same, test, test_kind = op == '=', is_equal, 'equal'
    if op == '!=' then test, test_kind = is_other, nil end
    return function(d)
      local a, b = x(d), y(d)
      local kind = type(a)
      if kind == type(b) and (kind == 'number' or kind == 'string') then return (a == b) == same end
      return any_pair(d, a, b, test, test_kind)
    end
  end
  local test = op == '<' and is_below or op == '>' and is_above or op == '<=' and is_not_above or is_not_below
  return function(d)
    local a, b = x(d), y(d)
    if type(a) == 'number' and type(b) == 'number' then
      if a ~= a or b ~= b then return false end
      if swap then return (b < a) ~= negated end
      return (a < b) ~= negated
    end
    return any_pair(d, a, b, test, test_kind)
  end
end
