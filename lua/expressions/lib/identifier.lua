--- identifier: reading what a path of names and subscripts leads to.
--- @include comparison, document, marked_text, messagepack_numbers()

local number_marks = {}

-- What a mark of MessagePack stands for.
local function marked_number_of(d, mark)
  number_marks.known = number_marks.known or messagepack_numbers()
  return number_marks.known.marked_value(mark, d.exact)
end

-- An element as a value; objects, JSON's null and the empty string are NULL.
local function scalar_of(d, value)
  local kind = type(value)
  if kind == 'number' then
    if d.exact then
      if d.doubles and (value % 1 ~= 0 or value >= 2 ^ 53 or value <= -2 ^ 53) then return value end
      return d.exact.of(value)
    end
    if value >= 2 ^ 53 or value <= -2 ^ 53 then error(d) end
    return value
  end
  if kind == 'boolean' then return value end
  if kind ~= 'string' or value == '' then return nil end
  if not d.exact or d.doubles or string.byte(value, 1) ~= 1 then return value end
  local text, first = string.sub(value, 2), string.byte(value, 2)
  if first == 1 then return text end
  if d.format then return marked_number_of(d, value) end
  if string.find(text, '[.eE]') then return tonumber(text) or 0 / 0 end
  return d.exact.parse(text)
end

-- Adds what lies at the end of the path from `i` to the list. An array in the way is entered; the decoder bounds the
-- depth.
local function collect_values(d, value, path, i, list)
  local part = path[i]
  while type(value) == 'table' do
    if value[1] ~= nil and type(part) ~= 'number' then
      spend_steps(4 * #value)
      for k = 1, #value do collect_values(d, value[k], path, i, list) end
      return
    end
    if part == nil then return end
    if type(part) == 'number' then value = value[part + 1] else value = value[part] end
    i = i + 1
    part = path[i]
  end
  if part ~= nil then return end
  local scalar = scalar_of(d, value)
  if scalar == nil then return end
  spend_steps(type(scalar) == 'string' and 20 + math.floor(#scalar / 16) or 20)
  list[#list + 1] = scalar
end

-- What the path leads to: NULL, one element, or the list of several.
local function read_path(d, path)
  local value = d.root
  for i = 1, #path + 1 do
    local part = path[i]
    if type(value) ~= 'table' then
      if part == nil then return scalar_of(d, value) end
      return nil
    end
    if value[1] ~= nil and type(part) ~= 'number' then
      local list = {}
      collect_values(d, value, path, i, list)
      if list[2] ~= nil then return list end
      return list[1]
    end
    if part == nil then return nil end
    if type(part) == 'number' then value = value[part + 1] else value = value[part] end
  end
end

local function compile_identifier(node)
  local path, marked = {}, {}
  for i = 2, #node do
    path[i - 1] = node[i]
    marked[i - 1] = type(node[i]) == 'number' and node[i] or marked_text(node[i])
  end
  local name = #path == 1 and path[1]
  return function(d)
    if d.exact then return read_path(d, d.doubles and path or marked) end
    local value = name and d.root[name]
    local kind = type(value)
    if kind == 'number' and value < 2 ^ 53 and value > -2 ^ 53 or kind == 'string' and value ~= '' then return value end
    return read_path(d, path)
  end
end
