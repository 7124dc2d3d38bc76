--- unread_entry: whether what is unread could be delivered now.
--- @include judging_plan, message_life

-- It is for this queue, its time has come and is not over, and the queue's filter will let it in.
local function will_enter(queue, plan, ref, fields, now)
  if fate_of(queue, ref, fields, false, now) then return false end
  if not plan.trees.entry or ref <= queue.entered then return true end
  local document = document_of(plan, ref, fields, 0, now)
  local enters = judge(plan, 'entry', document)
  charge_work(plan, document, 1)
  return enters
end
