--- expression: filters and priorities on messages; the language is docs/expressions.md.
-- Included as `expression()`: each function here is then a field of what it returns, and nothing else is.
--- @include expression_tree, quick_tree, evaluation, arithmetic, document

-- Compiled trees by their texts, and under `number` how many there are.
local known_trees = {} -- kept over calls

-- A tree that will be evaluated; `cost` is work that each evaluation counts as, whatever it finds; `quick` is nil where it is not so simple.
-- Long ones are known for one call only, as are automata, which grow as texts ask for their states.
local function compile_expression(json)
  local known = known_trees[json]
  if known then return known end
  local node = cjson.decode(json)
  local tree = {run = compile_node(node), cost = 10 + math.floor(#json / 8), quick = compile_quickly(node)}
  if #json > 2000 or string.find(json, '"like"', 1, true) or string.find(json, '"REGEXP_REPLACE"', 1, true) then return tree end
  local number = known_trees.number or 0
  if number == 200 then known_trees, number = {}, 0 end
  known_trees[json], known_trees.number = tree, number + 1
  return tree
end

-- fields: as XRANGE gives them. now: ms. An entry without our body field has as document the object of its fields.
-- Where the message type is not JSON, the caller adds `format`, as body_formats.lua takes it. root: what its body holds, nil where that is not known.
local function open_document(topic, id, fields, deliveries, now, root)
  local body
  for i = 1, #fields, 2 do
    if fields[i] == F.body then
      body = fields[i + 1]
      break
    end
  end
  -- `root`, which mostly comes later, has its place: eight names, so that the table does not grow.
  return {topic = topic, id = id, fields = fields, deliveries = deliveries, now = now, work = root and reading_work(#body) or 0,
    body = body, root = root}
end

-- Of bodies that are judged next, what each holds; false where that is not JSON, or large. Empty texts are none.
local function roots_of_bodies(texts)
  return decode_bodies(texts)
end

-- The work of reading bodies of so many bytes together, as `evaluation_work` has it.
local function work_of_roots(size)
  return reading_work(size) / 2
end

-- Whether a filter matches, by the value that its quick function gave of what the body holds; nil: only `expression_matches` tells.
local function quick_match(value)
  return quick_truth(value)
end

-- The score in its place of a message by the value of its quick priority, where nothing stands before its member; nil: only
-- `expression_priority` tells.
local function quick_score(value)
  if value == nil then return 1 end
  if type(value) ~= 'number' then return nil end
  -- What `0 - math.floor(math.max(value, 0))` is, without calling two functions.
  return value > 0 and value % 1 - value or 0
end

-- The text that `expression_text` gives of a message whose body holds `root`, and true; nil, and false where only that one tells.
local function text_quickly(compiled, root)
  local value = compiled.quick(root)
  if value == nil or type(value) == 'string' then return value, true end
  return nil, false
end

local function document_size(d)
  if d.body then return #d.body end
  local size = 0
  for _, text in ipairs(d.fields) do size = size + #text end
  return size
end

-- What was spent on this document so far, in some 0.1 us; a step is half of that.
local function evaluation_work(d)
  return d.work / 2
end

-- Whether a filter matches; a body that is not of its message type matches none.
local function expression_matches(compiled, d)
  return evaluate(compiled, d, truth) == true
end

-- What it gives as a text; nil for NULL.
local function expression_text(compiled, d)
  return evaluate(compiled, d, text_of)
end

-- The place of a message in a sorted set whose least (score, member) comes first: score and the member's beginning.
-- Scores hold 53 bits, so of larger priorities the lowest 11 stand in the member, the higher ones first.
local function expression_priority(compiled, d)
  local value = evaluate(compiled, d, numeric)
  if value == nil or value ~= value then return 1, '' end
  if type(value) == 'number' and value < 2 ^ 53 then return 0 - math.floor(math.max(value, 0)), '' end
  local exact = exact_numbers()
  if type(value) == 'number' then
    value = value < 2 ^ 64 and exact.of(math.floor(value)) or exact.parse('18446744073709551615')
  end
  if value.neg then return 0, '' end
  if value.hi * 1e10 + value.lo < 2 ^ 53 then return 0 - exact.float(value), '' end
  local low = (value.hi * 1024 + value.lo) % 2048
  return -exact.float(exact.result('-', value, exact.of(low))), '#' .. string.format('%03x', 2047 - low)
end
