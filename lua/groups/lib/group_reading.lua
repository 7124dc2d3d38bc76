--- group_reading: what a grouped queue reads: what may not be delivered here leaves it, of the rest each has its group.
--- @include group_names, next_messages, deliverable

-- What was read from the logs and the queue's filter refuses leaves the lists.
local function refuse_filtered(queue, plan, messages, now)
  local kept, refused = {refs = {}, fields = {}, deliveries = {}}, 0
  for i, ref in ipairs(messages.refs) do
    local fields, enters = messages.fields[i], true
    local _, _, addressed = delivery_options_of(fields)
    if i > messages.returned and not (addressed and addressed ~= queue.name) then
      local document = document_of(plan, ref, fields, 0, now)
      enters = judge(plan, 'entry', document)
      charge_work(plan, document, 1)
    end
    if enters then
      local number = #kept.refs + 1
      kept.refs[number], kept.fields[number], kept.deliveries[number] = ref, fields, messages.deliveries[i]
    else
      refused = refused + 1
    end
  end
  messages.refs, messages.fields, messages.deliveries = kept.refs, kept.fields, kept.deliveries
  if refused > 0 then call('HINCRBY', K.queue(queue.name), F.filtered, refused) end
end

-- The next messages, at most `wanted`: what is ready, or with `from_log` what is unread; of a queue with several topics that and what is
-- ready. names: the group of each, '' for none; ends: ms when its life is over, or false. Of what was read
-- straight from a log `keep_waiting` has to say what becomes of it.
local function read_grouped(queue, plan, wanted, from_log, now)
  local is_judged = plan.trees.group or plan.trees.entry
  local is_quick = plan.trees.group and not plan.trees.entry and compiled_tree(plan, 'group').quick
  local weight = is_judged and (queue.format and 150 or is_quick and 20 or 50) or 1
  -- Of a log that is looked through nothing is changed yet.
  local reading = from_log and queue.topic ~= '' and {refs = {}, ids = {}, noted = {}, from = '', number = 0} or nil
  local messages = next_messages(queue, wanted, {from_log = from_log and wanted or 0, weight = weight, read = reading})
  messages.reading = reading
  messages.number = #messages.refs
  plan.spent.work = plan.spent.work + messages.number * 0.2
  if plan.trees.entry then refuse_filtered(queue, plan, messages, now) end
  if messages.special or queue.fated then keep_deliverable(queue, messages, now) end
  messages.ends = messages.ends or {}
  local roots = plan.trees.group and roots_of(plan, messages.fields) or {}
  messages.names = group_names(plan, messages.refs, messages.fields, roots, now)
  return messages
end
