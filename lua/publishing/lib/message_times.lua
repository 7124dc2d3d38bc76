--- message_times: what is noted of messages that have a time of their own, when they are recorded: when they end and are due.
--- @include judging_plan, schedule, timetable, listing_form

-- The queue has not read it, so that it is noted ahead of the cursor; what the queue's filter refuses is left to be read.
local function note_scheduled(queue, topic, items, now)
  local found, ahead, plan = {}, {}, queue.sorted and load_plan(queue)
  for _, item in ipairs(items) do
    local ref = ref_of(topic, item.id)
    local document = plan and plan.trees.entry and document_of(plan, ref, item.fields, 0, now)
    local fate, at, ends = fate_of(queue, ref, item.fields, false, now)
    if fate == V.scheduled and (not document or judge(plan, 'entry', document)) then
      local number = #found
      found[number + 1], found[number + 2], found[number + 3] = ref, at, ends or false
      ahead[#ahead + 1], ahead[#ahead + 2] = ref, V.scheduled
    end
    if document then charge_work(plan, document, 1) end
    if plan and plan.spent.work >= V.sort_work then break end
  end
  call_in_batches('HSET', K.ahead(queue.name), ahead)
  if ahead[1] then set_listing_form(queue, V.listing_broken) end
  schedule_messages(queue, found)
end

-- messages: by number, from `from` to `to`; those of a topic with very many queues are noted when each reads them.
local function note_times(topic, route, messages, from, to, now)
  local ends, scheduled = {}, {}
  for i = from, to do
    local item = messages[i]
    if item then
      local own, due = delivery_options_of(item.fields)
      if own then
        ends[#ends + 1] = begin_of_life(string.match(item.id, '^%d+'), due) + own
        ends[#ends + 1] = item.id
      end
      if due and due > now then scheduled[#scheduled + 1] = item end
    end
  end
  call_in_batches('ZADD', K.expirations(topic), ends)
  for i = 1, #ends, 2 do add_due(ends[i], 'expirations ' .. topic, 'LT') end
  local work = 0
  for name in string.gmatch(scheduled[1] and route or '', '[^%s*]+') do
    work = work + #scheduled
    if work > 4 * V.batch then break end
    note_scheduled(load_queue(name), topic, scheduled, now)
  end
end
