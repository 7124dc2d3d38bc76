--- function_calls: calls in an expression: their arguments are all evaluated, then read as each function takes them.
--- @include evaluation_steps, text_functions, array_functions, number_functions, message_functions, date_functions, automaton()

local known_functions = {} -- kept over calls

-- By name; a family is made when an expression first calls one of it.
local function find_function(name)
  local families = {text_functions, array_functions, number_functions, message_functions, date_functions}
  while not known_functions[name] do
    local made = (known_functions.families or 0) + 1
    known_functions.families = made
    for each, entry in pairs(families[made]()) do known_functions[each] = entry end
  end
  return known_functions[name]
end

-- An argument as a (t)ext, a (n)umber or a (w)hole number with its fraction cut off; nil where it is none. Texts that
-- cost otherwise: (l) nothing, (c) by the byte, (f) as formats.
local function read_argument(d, value, kind)
  if kind ~= 'n' and kind ~= 'w' then return text_of(d, value) end
  local number = numeric(d, value)
  if kind == 'n' or number == nil then return number end
  if d.exact then number = d.exact.float(number) end
  if number ~= number then return nil end
  number = math.max(-2 ^ 64, math.min(2 ^ 64, number))
  return number < 0 and math.ceil(number) or math.floor(number)
end

local function spend_argument(d, value, kind)
  if kind == 't' then
    if #value >= 16 then spend_steps(math.floor(#value / 16)) end
  elseif kind == 'c' or kind == 'f' then
    spend_steps(#value * (kind == 'c' and 3 or 8))
  end
end

-- A string that was built may be too long.
local function checked_size(d, value)
  if type(value) == 'string' and #value > 65536 then error(evaluation_steps) end
  return value
end

local function compile_replacement(node, again)
  local x, machines, to = again(node[3]), automaton(), again(node[5])
  local machine, replace = machines.load_automaton(node[4]), machines.automaton_replace
  return function(d)
    local text, replacement = x(d), to(d)
    text, replacement = text_of(d, text), text_of(d, replacement)
    if text == nil or replacement == nil then return nil end
    return replace(machine, text, replacement, evaluation_steps, 65536) or error(evaluation_steps)
  end
end

local function compile_call(node, again)
  if node[2] == 'REGEXP_REPLACE' then return compile_replacement(node, again) end
  local entry, arguments, count = find_function(node[2]), {}, #node - 2
  for i = 1, count do arguments[i] = again(node[i + 2]) end
  if type(entry) == 'function' then
    return function(d)
      local values = {}
      for i = 1, count do values[i] = arguments[i](d) end
      return entry(d, values, count)
    end
  end
  local kinds, run = {}, entry[2]
  for i = 1, count do kinds[i] = string.sub(entry[1], i, i) end
  if count == 1 then
    local x, kind = arguments[1], kinds[1]
    return function(d)
      local value = read_argument(d, x(d), kind)
      if value == nil then return nil end
      spend_argument(d, value, kind)
      return checked_size(d, run(d, value))
    end
  end
  return function(d)
    local values = {}
    for i = 1, count do values[i] = arguments[i](d) end
    for i = 1, count do
      values[i] = read_argument(d, values[i], kinds[i])
      if values[i] == nil then return nil end
    end
    for i = 1, count do spend_argument(d, values[i], kinds[i]) end
    return checked_size(d, run(d, unpack(values, 1, count)))
  end
end
