--- evaluation_steps: the steps of an evaluation, and finding a text in another.

-- `left` is what the evaluation that runs has left; one runs at a time. When that goes below 0, this is the error.
local evaluation_steps = {}

local function spend_steps(count)
  local steps = evaluation_steps
  steps.left = steps.left - count
  if steps.left < 0 then error(steps) end
end

-- string.find tries every place, at the worst as many bytes each time as `part` has.
local function spend_search(text, part)
  local places = #text - #part
  if places >= 8 then spend_steps(math.floor(places / 8) * (1 + math.floor(#part / 16))) end
end

local function find_text(text, part)
  spend_search(text, part)
  return (string.find(text, part, 1, true))
end
