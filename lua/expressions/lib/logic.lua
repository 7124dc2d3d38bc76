--- logic: truth, AND, OR, NOT and what else gives 1, 0 or NULL.
--- @include comparison

-- true, false, or nil for NULL; a list is true if any element is.
local function truth(d, value)
  local kind = type(value)
  if kind == 'boolean' or kind == 'nil' then return value end
  if kind == 'string' then
    value = spelled_number(d, value) or 0
  elseif kind == 'table' and not value.hi then
    for i = 1, #value do
      if truth(d, value[i]) then return true end
    end
    return false
  end
  if type(value) == 'table' then return value.hi + value.lo > 0 end
  return value ~= 0 and value == value
end

-- `decisive` ends it: false for AND, true for OR.
local function compile_junction(node, again, decisive)
  local parts = {}
  for i = 2, #node do parts[i - 1] = again(node[i]) end
  local count = #parts
  return function(d)
    local unknown = false
    for i = 1, count do
      local value = parts[i](d)
      if value ~= true and value ~= false and value ~= nil then value = truth(d, value) end
      if value == decisive then return decisive end
      if value == nil then unknown = true end
    end
    if unknown then return nil end
    return not decisive
  end
end

-- The OR of a test on the first operand and each of the others.
local function compile_any(node, again, test, test_kind)
  local x, others = again(node[2]), {}
  for i = 3, #node do others[i - 2] = again(node[i]) end
  local count = #others
  return function(d)
    local a, unknown = x(d), false
    for i = 1, count do
      local held = any_pair(d, a, others[i](d), test, test_kind)
      if held then return true end
      if held == nil then unknown = true end
    end
    if unknown then return nil end
    return false
  end
end

local function compile_between(node, again)
  local x, low, high = again(node[2]), again(node[3]), again(node[4])
  return function(d)
    local a, from, to = x(d), low(d), high(d)
    if a == nil then return nil end
    local many, unknown = type(a) == 'table' and not a.hi, false
    for i = 1, many and #a or 1 do
      local element = many and {a[i]} or a
      local inside = any_pair(d, element, from, is_not_below, 'above')
      if inside ~= false then
        local below = any_pair(d, element, to, is_not_above, 'below')
        if inside and below then return true end
        if below ~= false then unknown = true end
      end
    end
    if unknown then return nil end
    return false
  end
end

local function compile_condition(node, again)
  local condition, x, y = again(node[2]), again(node[3]), again(node[4])
  return function(d)
    if truth(d, condition(d)) then return x(d) end
    return y(d)
  end
end

local function compile_null(node, again)
  local x = again(node[2])
  return function(d) return x(d) == nil end
end
