--- entry_belonging: whether an entry of a log is a message of a queue: since the recovery point, for it, and let in by its filter.
--- @include judging_plan, queue_history, message_life

-- The name of the tree that judged the message, in the queue's plan; nil: everything entered.
local function entry_tree_for(queue, plan, topic, id)
  local order = order_of(id)
  for i, filter in ipairs(history_of(queue.name).former) do
    if order <= (filter.cursors[topic] or '') then
      local name = 'former ' .. i
      plan.trees[name] = filter.tree
      return filter.tree ~= '' and name or nil
    end
  end
  return plan.trees.entry and 'entry' or nil
end

-- The second value tells whether the queue's filter kept it out. The work is counted.
local function belongs_to_queue(queue, ref, fields, now)
  local plan, topic, id = load_plan(queue), parse_ref(ref)
  if is_before_start(queue.name, topic, id) then return false end
  local _, _, addressed = delivery_options_of(fields)
  if addressed and addressed ~= queue.name then return false end
  local tree = entry_tree_for(queue, plan, topic, id)
  if not tree then return true end
  local document = document_of(plan, ref, fields, 0, now)
  local enters = judge(plan, tree, document)
  charge_work(plan, document, 1)
  return enters, not enters
end
