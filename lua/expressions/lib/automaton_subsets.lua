--- automaton_subsets: stepping an automaton that is a set of instructions; see ampsq/expressions/automaton.py.

-- 1 a byte like any other, 2 one of a word, 3 a line feed; 0 an end of the text, 4 a line feed that is its last byte.
local function automaton_kind(byte)
  if byte == 10 then return 3 end
  local word = byte >= 97 and byte <= 122 or byte >= 48 and byte <= 57 or byte >= 65 and byte <= 90 or byte == 95
  return word and 2 or 1
end

local function automaton_holds(assertion, before, after)
  if assertion == -1 then return before == 0 end
  if assertion == -2 then return after == 0 end
  if assertion == -3 then return after == 0 or after == 4 end
  if assertion == -4 then return before == 0 or before == 3 and after ~= 0 end
  if assertion == -5 then return after == 0 or after >= 3 end
  return ((before == 2) ~= (after == 2)) == (assertion == -6)
end

-- Adds places to a list of `number` places, those that are not marked for this position yet; returns the new number.
local function automaton_add(list, number, marks, position, places)
  for i = 1, #places do
    local place = places[i]
    if marks[place] ~= position then
      marks[place], number = position, number + 1
      list[number] = place
    end
  end
  return number
end

-- The end of the longest match that begins at `start`, or nil; with `any` that of the first match that is found.
local function automaton_subsets(object, text, start, steps, any)
  steps.left = steps.left - 10
  if steps.left < 0 then error(steps) end
  local code, sets, finish, last, best = object.code, object.sets, #object.code, #text - 1, nil
  local before = start == 0 and 0 or automaton_kind(string.byte(text, start))
  local active, number, marks, coming, ahead = {0}, 1, {[0] = start}, {}, {}
  for position = start, last + 1 do
    local byte = string.byte(text, position + 1)
    local after = 0
    if object.asks and byte then
      after = automaton_kind(byte)
      if after == 3 and position == last then after = 4 end
    end
    local i, finished, taken = 1, 0, 0
    while i <= number do
      local place = active[i]
      local item = code[place + 1]
      if place == finish then
        if any then return position end
        best, finished = position, 1
      elseif type(item) == 'table' then
        number = automaton_add(active, number, marks, position, item)
      elseif item >= 0 then
        if sets[item][byte] then
          taken = taken + 1
          coming[taken], ahead[place + 1] = place + 1, position + 1
        end
      elseif automaton_holds(item, before, after) then
        number = automaton_add(active, number, marks, position, {place + 1})
      end
      i = i + 1
    end
    if number == finished or not byte then return best end
    steps.left = steps.left - 3 * (number - finished)
    if steps.left < 0 then error(steps) end
    if object.loop and ahead[0] ~= position + 1 then
      taken = taken + 1
      coming[taken], ahead[0] = 0, position + 1
    end
    active, number, marks, coming, ahead, before = coming, taken, ahead, active, marks, after == 4 and 3 or after
  end
end

local function load_subsets(tree)
  local object = {sets = {}, code = tree[3], loop = tree[4] == 1}
  for i, flat in ipairs(tree[2]) do
    local set = {}
    for j = 1, #flat, 2 do
      for byte = flat[j], flat[j + 1] do set[byte] = true end
    end
    object.sets[i - 1] = set
  end
  for _, item in ipairs(object.code) do object.asks = object.asks or type(item) == 'number' and item < 0 end
  return object
end
