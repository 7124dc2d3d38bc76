--- array_functions: functions of lists and of several values.
--- @include value_order, evaluation_steps

local function array_functions()
  local A = {}

  local function elements_of(value)
    if value == nil then return nil end
    return type(value) == 'table' and not value.hi and value or {value}
  end

  local function first_of(value)
    if type(value) == 'table' and not value.hi then return value[1] end
    return value
  end

  local function exact_of(d, whole)
    return d.exact and d.exact.of(whole) or whole
  end

  local function total_of(d, elements)
    local total = exact_of(d, 0)
    for i = 1, #elements do total = arithmetic(d, '+', total, elements[i]) end
    return total
  end

  -- side: -1 for the least, 1 for the greatest; the first of equals.
  local function best_of(d, elements, side)
    local best = elements[1]
    for i = 2, #elements do
      if value_order(d, elements[i], best) == side then best = elements[i] end
    end
    return best
  end

  local function best_argument(d, values, count, side)
    local scalars, size = {}, 0
    for i = 1, count do
      scalars[i] = first_of(values[i])
      if scalars[i] == nil then return nil end
      if type(scalars[i]) == 'string' then size = size + #scalars[i] end
    end
    spend_steps(math.floor(size / 64))
    return best_of(d, scalars, side)
  end

  function A.ARRAY_COUNT(d, values)
    local elements = elements_of(values[1])
    return exact_of(d, elements and #elements or 0)
  end
  function A.ARRAY_SUM(d, values) return values[1] ~= nil and total_of(d, elements_of(values[1])) or nil end
  function A.ARRAY_AVG(d, values)
    if values[1] == nil then return nil end
    local elements = elements_of(values[1])
    local total = total_of(d, elements)
    return (d.exact and d.exact.float(total) or total) / #elements
  end
  function A.ARRAY_MIN(d, values) if values[1] ~= nil then return best_of(d, elements_of(values[1]), -1) end end
  function A.ARRAY_MAX(d, values) if values[1] ~= nil then return best_of(d, elements_of(values[1]), 1) end end
  function A.LEAST(d, values, count) return best_argument(d, values, count, -1) end
  function A.GREATEST(d, values, count) return best_argument(d, values, count, 1) end
  function A.COALESCE(_, values, count)
    for i = 1, count do
      if values[i] ~= nil then return first_of(values[i]) end
    end
  end
  function A.ARRAY_TO_STRING(d, values)
    local elements, between = elements_of(values[1]), text_of(d, values[2])
    if not elements or not between then return nil end
    local texts, size = {}, (#elements - 1) * #between
    for i = 1, #elements do
      texts[i] = text_of(d, elements[i])
      size = size + #texts[i]
    end
    if size > 65536 then error(evaluation_steps) end
    spend_steps(math.floor(size / 16))
    return table.concat(texts, between)
  end

  return A
end
