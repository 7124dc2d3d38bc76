--- automaton: regular expressions that never go back; ampsq/expressions/automaton.py compiles them and tells the trees.
-- A state of a deterministic one is a table, symbol -> next state, or false where none is needed any more; it is filled
-- as texts ask for it. [-1 - symbol] says that a match was found.
--- @include automaton_subsets

local function automaton_state(object, cell)
  local number = math.floor(cell / 2)
  if number > 0 and not object.states[number] then
    object.states[number] = {row = (number - 1) * object.columns * object.width}
  end
  return object.states[number] or false
end

local function automaton_link(object, state, symbol)
  local runs, i, cell = object.runs, 2, 0
  while runs[i] and runs[i] < symbol do i = i + 2 end
  if runs[i] then
    local at = state.row + runs[i - 1] * object.width + 1
    local high, low = string.byte(object.cells, at, at + object.width - 1)
    cell = low and (high - 35) * 57 + low - 35 or high - 35
  end
  state[symbol] = automaton_state(object, cell)
  if cell % 2 == 1 then state[-1 - symbol] = true end
  return state[symbol]
end

local function load_automaton(tree)
  if tree[1] == 0 then return load_subsets(tree) end
  local object = {width = tree[1], runs = tree[2], cells = tree[4], columns = 0, states = {}, starts = {}}
  for i = 1, #tree[2], 2 do object.columns = math.max(object.columns, tree[2][i] + 1) end
  for i, cell in ipairs(tree[3]) do object.starts[i] = automaton_state(object, cell) end
  object.always = tree[3][1] == 1
  return object
end

-- Whether it matches anywhere. `steps` is {left = number}; when that would go below 0, it is the error that is raised.
local function automaton_search(object, text, steps)
  if object.code then return automaton_subsets(object, text, 0, steps, true) ~= nil end
  local state, size = object.starts[1], #text
  if not state then return object.always end
  for first = 1, size, 100 do
    local bytes = {string.byte(text, first, math.min(first + 99, size))}
    if first + 99 >= size and bytes[#bytes] == 10 then bytes[#bytes] = 256 end
    for i = 1, #bytes do
      local following = state[bytes[i]]
      if not following then
        if following == nil then following = automaton_link(object, state, bytes[i]) end
        if not following then
          steps.left = steps.left - i
          if steps.left < 0 then error(steps) end
          return state[-1 - bytes[i]] == true
        end
      end
      state = following
    end
    steps.left = steps.left - #bytes
    if steps.left < 0 then error(steps) end
  end
  if state[257] == nil then automaton_link(object, state, 257) end
  return state[-258] == true
end

-- The end of the longest match that begins behind `start` bytes, as a number of bytes, or nil.
local function automaton_longest(object, text, start, steps)
  if object.code then return automaton_subsets(object, text, start, steps, false) end
  local size, starts, best = #text, object.starts, nil
  local state = starts[1]
  if start > 0 and #starts > 1 then state = starts[automaton_kind(string.byte(text, start)) + 1] end
  for position = start, size - 1 do
    steps.left = steps.left - 4
    if steps.left < 0 then error(steps) end
    if not state then return nil end
    local symbol = string.byte(text, position + 1)
    if symbol == 10 and position == size - 1 then symbol = 256 end
    local following = state[symbol]
    if following == nil then following = automaton_link(object, state, symbol) end
    if state[-1 - symbol] then best = position end
    if not following then return best end
    state = following
  end
  if state and state[257] == nil then automaton_link(object, state, 257) end
  return state and state[-258] and size or best
end

-- Every leftmost longest match replaced, empty ones aside; nil when that has more than `limit` bytes.
local function automaton_replace(object, text, replacement, steps, limit)
  local parts, size, kept, start = {}, #text, 0, 0
  while start < #text do
    local ending = automaton_longest(object, text, start, steps)
    if ending and ending > start then
      parts[#parts + 1] = string.sub(text, kept + 1, start)
      parts[#parts + 1] = replacement
      size, kept, start = size + #replacement - (ending - start), ending, ending
    else
      start = start + 1
    end
  end
  if size > limit then return nil end
  parts[#parts + 1] = string.sub(text, kept + 1)
  return table.concat(parts)
end
