--- judging_plan: what a sorted queue judges its messages by: its own expressions and the filters of its subscriptions.
--- @include queue, ref, expression()

local loaded_plans = {}

-- What all queues of one call share; names of queues are no keys here.
local shared_plan = {}

-- Copying what came with a call is work, too, some 4 ns a byte; something is judged at once however much it is.
local function work_of_arguments()
  local size, arguments = 0, ARGV
  for i = 1, #arguments do size = size + #arguments[i] end
  return math.min(size / 2000, 0.8 * V.sort_work)
end

-- trees: of `entry`, `priority`, `barrier` and of each filter. places: filter -> place up to which its index is built.
-- spent: the work that this script has done on all queues.
local function load_plan(queue)
  if loaded_plans[queue.name] then return loaded_plans[queue.name] end
  shared_plan.spent = shared_plan.spent or {work = work_of_arguments()}
  local plan = {
    filters = {}, places = {}, trees = {}, compiled = {}, spent = shared_plan.spent, format = queue.format,
  }
  local fields = call('HGETALL', K.filters(queue.name))
  for i = 1, #fields, 2 do
    local kind, id = string.match(fields[i], '^(%l+) ?(.*)$')
    if kind == 'filter' then
      plan.filters[#plan.filters + 1] = id
      plan.trees[id] = fields[i + 1]
    elseif kind == 'place' then
      local score, member = string.match(fields[i + 1], '^(%S+) ?(.*)$')
      plan.places[id] = {score = tonumber(score), member = member}
    elseif kind ~= 'users' then
      plan.trees[kind] = fields[i + 1]
    end
  end
  loaded_plans[queue.name] = plan
  return plan
end

-- The functions of expressions/lib/expression.lua, made when something is first judged.
local function expression_language()
  shared_plan.language = shared_plan.language or expression()
  return shared_plan.language
end

-- The compiled tree of that name; compiled when it is first needed.
local function compiled_tree(plan, name)
  local tree = plan.compiled[name]
  if not tree then
    tree = expression_language().compile_expression(plan.trees[name])
    plan.compiled[name] = tree
  end
  return tree
end

-- Of what is judged next what each body holds; false, or nil, where it is read when it is judged. fields: of each message.
local function roots_of(plan, fields)
  if plan.format or not fields[2] then return {} end
  local texts = {}
  for i, some in ipairs(fields) do texts[i] = some[1] == F.body and some[2] or '' end
  return expression_language().roots_of_bodies(texts)
end

local function judge(plan, name, document)
  return expression_language().expression_matches(compiled_tree(plan, name), document)
end

-- The document of a message, and the work of reading it on the bill. topic, id: of the message, root: what its body holds, where the caller
-- knows them.
local function document_of(plan, ref, fields, deliveries, now, topic, id, root)
  local language = expression_language()
  if not topic then topic, id = parse_ref(ref) end
  local document = language.open_document(topic, id, fields, deliveries, now, root or nil)
  if plan.format then document.format = plan.format end
  plan.spent.work = plan.spent.work + 1 + language.document_size(document) / 1500
  return document
end

local function charge_work(plan, document, number)
  plan.spent.work = plan.spent.work + number * 0.15 + expression_language().evaluation_work(document) / 130
end

-- By what all messages of a queue get their places, where each of it is quick: else false. entry, barrier, priority, filters: the functions,
-- false where there is none; work: that of all of them.
local function quick_trees(plan)
  if plan.quick ~= nil then return plan.quick end
  local quick = {filters = {}, work = 0}
  plan.quick = quick
  local function add(to, at, name)
    local tree = plan.trees[name] and compiled_tree(plan, name)
    to[at] = tree and tree.quick or false
    if tree then quick.work = quick.work + tree.cost end
    if tree and not tree.quick then plan.quick = false end
  end
  for _, name in ipairs({'entry', 'barrier', 'priority'}) do add(quick, name, name) end
  for i, id in ipairs(plan.filters) do add(quick.filters, i, id) end
  return plan.quick
end

-- As `document_of` and `charge_work` do, of so many messages that were judged quickly, by their bodies of so many bytes together. judgements: of
-- each; work: that of the trees that judged it.
local function charge_quick_work(plan, number, size, judgements, work)
  local each = 1 + judgements * 0.15 + work / 260
  plan.spent.work = plan.spent.work + number * each + size / 1500 + expression_language().work_of_roots(size) / 130
end
