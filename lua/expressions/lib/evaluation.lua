--- evaluation: running a compiled tree on a document, within its steps.
--- @include document, exact_numbers, evaluation_steps

-- What comes of the value, still within its steps.
local function as_value(_, value) return value end

local function run_finished(run, d, finish)
  return finish(d, run(d))
end

-- Runs it on doubles, or exactly where they do not do; NULL when it went over its steps.
local function evaluate(compiled, d, finish, exact)
  if d.root == nil then load_root(d) end
  if not d.root then return nil end
  if d.exact ~= exact then switch_root(d, exact) end
  if d.spellings then d.spellings = nil end
  local steps, most = evaluation_steps, d.steps or 60000
  steps.left = most
  local fine, value = pcall(run_finished, compiled.run, d, finish)
  d.work = d.work + compiled.cost + most - math.max(steps.left, 0)
  if fine then return value end
  if value == d and not exact then return evaluate(compiled, d, finish, exact_numbers()) end
  if value ~= steps then error(value, 0) end
end
