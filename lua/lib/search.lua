--- search: finding a text in another in time that grows with both, not with their product.

-- What follows repeats itself too often for trying: each byte is looked at once or twice (Knuth, Morris, Pratt).
local function find_patiently(text, part, from)
  local width, back, matched = #part, {[0] = -1, [1] = 0}, 0
  for i = 2, width do
    while matched >= 0 and string.byte(part, matched + 1) ~= string.byte(part, i) do matched = back[matched] end
    matched = matched + 1
    back[i] = matched
  end
  matched = 0
  for i = from, #text do
    local byte = string.byte(text, i)
    while matched >= 0 and string.byte(part, matched + 1) ~= byte do matched = back[matched] end
    matched = matched + 1
    if matched == width then return i - width + 1 end
  end
end

-- Where `part` first is in the text at or after `from`, or nil. string.find tries every place, at the worst as many
-- bytes each time as `part` has; so where both are long it looks for the beginning only, as long as that seldom misleads.
local function find_text(text, part, from)
  local width, length = #part, #text - from + 1
  if width <= 16 or width * length <= 1048576 then return (string.find(text, part, from, true)) end
  local beginning, spent = string.sub(part, 1, 16), 0
  local at = from
  while spent < 64 do
    at = string.find(text, beginning, at, true)
    if not at or at + width - 1 > #text then return nil end
    if string.sub(text, at, at + width - 1) == part then return at end
    at, spent = at + 1, spent + 1
  end
  return find_patiently(text, part, at)
end
