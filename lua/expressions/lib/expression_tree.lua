--- expression_tree: a tree of ampsq/expressions as functions of a document, one for each node; docs/decisions/0003.
--- @include identifier, logic, evaluation_steps, function_calls, automaton()

local function compile_constant(node)
  local kind, value = node[1], node[2]
  if kind == 'null' then return function() return nil end end
  if kind == 'd' or kind == 's' then return function() return value end end
  if kind == 'x' then
    local bytes = string.gsub(value, '..', function(hex) return string.char(tonumber(hex, 16)) end)
    return function() return bytes end
  end
  if kind == 'n' then
    return function(d)
      if d.exact then return d.exact.of(value) end
      return value
    end
  end
  return function(d) return d.exact and d.exact.parse(value) or error(d) end
end

local function compile_like(node, again)
  local x, machines = again(node[2]), automaton()
  local machine, search = machines.load_automaton(node[3]), machines.automaton_search
  return function(d)
    local value = x(d)
    if value == nil then return nil end
    if type(value) ~= 'table' or value.hi then return search(machine, text_of(d, value), evaluation_steps) end
    for i = 1, #value do
      if search(machine, text_of(d, value[i]), evaluation_steps) then return true end
    end
    return false
  end
end

local function compile_has(node, again)
  local x, part = again(node[2]), node[3]
  local function test(d, value) return find_text(text_of(d, value), part) ~= nil end
  return function(d) return any_pair(d, x(d), part, test, 'part') end
end

local function is_beginning(d, a, b)
  local part = text_of(d, b)
  return string.sub(text_of(d, a), 1, #part) == part
end

local function is_ending(d, a, b)
  local part = text_of(d, b)
  return part == '' or string.sub(text_of(d, a), -#part) == part
end

local function compile_nan(node, again)
  local x = again(node[2])
  return function(d)
    local value = x(d)
    return type(value) == 'number' and value ~= value
  end
end

-- A node as a function of a document.
local function compile_node(node)
  local op = node[1]
  if op == 'f' then return compile_identifier(node) end
  if op == 'and' or op == 'or' then return compile_junction(node, compile_node, op == 'or') end
  if op == '=' or op == '!=' or op == '<' or op == '<=' or op == '>' or op == '>=' then
    return compile_comparison(op, node, compile_node)
  end
  if op == 'not' then
    local x = compile_node(node[2])
    return function(d)
      local value = truth(d, x(d))
      if value == nil then return nil end
      return not value
    end
  end
  if op == 'has' then return compile_has(node, compile_node) end
  if op == 'like' then return compile_like(node, compile_node) end
  if op == 'in' then return compile_any(node, compile_node, is_equal, 'equal') end
  if op == 'begins' then return compile_any(node, compile_node, is_beginning, 'text') end
  if op == 'ends' then return compile_any(node, compile_node, is_ending, 'text') end
  if op == 'between' then return compile_between(node, compile_node) end
  if op == 'isnull' then return compile_null(node, compile_node) end
  if op == 'isnan' then return compile_nan(node, compile_node) end
  if op == 'if' then return compile_condition(node, compile_node) end
  if op == 'call' then return compile_call(node, compile_node) end
  if #op == 1 and string.find('+-*/%', op, 1, true) or op == 'neg' then
    return compile_arithmetic(op, node, compile_node)
  end
  return compile_constant(node)
end
