--- quick_tree: trees of comparisons of names with numbers and texts, evaluated on what a body holds, without a document.
-- Such a function gives what the whole evaluation gives (expression_tree.lua), spends no steps, raises nothing, and says where only the
-- whole one tells: of lists, of numbers beyond doubles, of texts beside numbers.

-- What says so: itself, and no value.
local unsure = {} -- kept over calls

local function quick_identifier(node)
  local name = node[2]
  if #node > 2 or type(name) == 'number' then return nil end
  return function(root)
    local value = root[name]
    local kind = type(value)
    if kind == 'number' and value < 2 ^ 53 and value > -2 ^ 53 or kind == 'string' and value ~= '' then return value end
    if value == nil and root[1] == nil then return nil end
    return unsure
  end
end

-- What a comparison of two values comes to that are not both numbers or both texts.
local function quick_null(a, b)
  if a == unsure or b == unsure or a ~= nil and b ~= nil then return unsure end
  return nil
end

local function quick_equality(x, y, same)
  return function(root)
    local a, b = x(root), y(root)
    local kind = type(a)
    if kind == type(b) and (kind == 'number' or kind == 'string') then return (a == b) == same end
    return quick_null(a, b)
  end
end

local function quick_order(op, x, y)
  local swap, negated = op == '>' or op == '<=', op == '<=' or op == '>='
  return function(root)
    local a, b = x(root), y(root)
    if type(a) ~= 'number' or type(b) ~= 'number' then return quick_null(a, b) end
    if swap then return (b < a) ~= negated end
    return (a < b) ~= negated
  end
end

-- Of some nodes, from the one at `first` on; nil where one of them has none.
local function quick_parts(node, first, again)
  local parts = {}
  for i = first, #node do
    parts[#parts + 1] = again(node[i])
    if #parts ~= i - first + 1 then return nil end
  end
  return parts
end

local function quick_junction(parts, decisive)
  local count, other = #parts, not decisive
  return function(root)
    local unknown = false
    for i = 1, count do
      local value = parts[i](root)
      if value == decisive then return decisive end
      if value == nil then unknown = true elseif value ~= other then return unsure end
    end
    if unknown then return nil end
    return other
  end
end

local function quick_any(parts)
  local count = #parts
  return function(root)
    local a = parts[1](root)
    local kind = type(a)
    if kind ~= 'number' and kind ~= 'string' then return unsure end
    for i = 2, count do
      local b = parts[i](root)
      if type(b) ~= kind then return unsure end
      if a == b then return true end
    end
    return false
  end
end

local function quick_not(x)
  return function(root)
    local value = x(root)
    if value == true or value == false then return not value end
    if value == nil then return nil end
    return unsure
  end
end

-- A node as a function of a root; nil: it is not so simple.
local function compile_quickly(node)
  local op, value = node[1], node[2]
  if op == 'n' or op == 'd' or op == 's' then
    local is_double = type(value) == 'number' and value < 2 ^ 53 and value > -2 ^ 53
    return (is_double or type(value) == 'string') and function() return value end or nil
  end
  if op == 'f' then return quick_identifier(node) end
  if op ~= 'and' and op ~= 'or' and op ~= 'not' and op ~= 'in' and op ~= '=' and op ~= '!=' and op ~= '<' and op ~= '<='
    and op ~= '>' and op ~= '>=' then return nil end
  local parts = quick_parts(node, 2, compile_quickly)
  if not parts then return nil end
  if op == 'and' or op == 'or' then return quick_junction(parts, op == 'or') end
  if op == 'not' then return quick_not(parts[1]) end
  if op == 'in' then return quick_any(parts) end
  if op == '=' or op == '!=' then return quick_equality(parts[1], parts[2], op == '=') end
  return quick_order(op, parts[1], parts[2])
end

-- What a value is as a condition: true, false also for NULL, or nil: the whole evaluation tells.
local function quick_truth(value)
  if value == true then return true end
  if value == false or value == nil then return false end
  if type(value) == 'number' then return value ~= 0 end
  return nil
end
