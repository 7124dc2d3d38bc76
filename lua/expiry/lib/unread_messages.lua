--- unread_messages: what a queue has not read yet, looked at without reading it; bounded as a look is.
--- @include ref, judging_plan, index_places, message_life

-- The topics with something unread and the least ms of it, in turn; at most a hundred.
local function unread_topics(queue)
  if queue.topic ~= '' then return {queue.topic, '0'} end
  return call('ZRANGE', K.behind(queue.name), 0, 99, 'WITHSCORES')
end

-- Topic and number, as `queue_stats` counts; what a queue with groups has listed is in them.
local function add_unread_fact(look)
  local topics, total = unread_topics(look.queue), 0
  for i = 1, #topics, 2 do
    local id, count = string.match(call('HGET', K.cursors(look.queue.name), topics[i]) or '', '^(%S+) (%d+)$')
    local listed = topics[i] == look.queue.topic and string.match(look.queue.listed or '', '^%d+ %S+ (%d+)')
    count = listed and math.max(count or 0, listed) or count
    local info, added, last = id and redis.pcall('XINFO', 'STREAM', K.log(topics[i])) or {}, 0, id
    for k = 1, #info, 2 do
      if info[k] == 'entries-added' then added = info[k + 1] end
      if info[k] == 'last-generated-id' then last = info[k + 1] end
    end
    if id ~= last then total = total + math.max(added - count, 0) end
  end
  look.facts[#look.facts + 1], look.facts[#look.facts + 2] = 'unread', string.format('%.0f', total)
end

-- Whether an unread entry is settled already, for another queue alone, owned elsewhere, or will be kept out; the work is counted.
local function is_passed_over(look, ref, fields)
  local bytes, plan = 0, look.plan
  for _, text in ipairs(fields) do bytes = bytes + #text end
  look.work = look.work + 0.1 + bytes / 20000
  if call('HEXISTS', K.ahead(look.queue.name), ref) == 1 then return true end
  local _, _, addressed = delivery_options_of(fields)
  if addressed and addressed ~= look.queue.name then return true end
  local remote = is_remote(look.queue, ref, fields)
  if not plan.trees.entry and not (remote and plan.trees.barrier) then
    if remote then look.remote = look.remote or ref end
    return remote
  end
  local document, before = document_of(plan, ref, fields, 0, look.ms), plan.spent.work
  local enters = not plan.trees.entry or ref <= look.queue.entered or judge(plan, 'entry', document)
  -- A barrier is every instance's own.
  remote = remote and enters and not (plan.trees.barrier and judge(plan, 'barrier', document))
  charge_work(plan, document, 1)
  look.work = look.work + plan.spent.work - before + 1
  if remote then look.remote = look.remote or ref end
  return remote or not enters
end

-- Calls visit(ref, fields) with a topic's unread entries until it returns true or the work is done.
local function visit_unread(look, topic, visit)
  local after, step = string.match(call('HGET', K.cursors(look.queue.name), topic) or '0-0', '^%S+'), 4
  repeat
    local entries = call('XRANGE', K.log(topic), '(' .. after, '+', 'COUNT', step)
    for _, entry in ipairs(entries) do
      if visit(ref_of(topic, entry[1]), entry[2]) then return end
      after = entry[1]
    end
    local ended = #entries < step
    step = math.min(step * 2, 64)
  until ended or look.work >= V.sort_work
end

-- The first unread message that will enter the queue, over all topics; the last one looked at when the work is done.
local function first_unread(look)
  local topics, found, last_seen = unread_topics(look.queue), nil, nil
  for i = 1, #topics, 2 do
    local ms = found and tonumber(string.match(found, '^%l(%d+)'))
    if ms and ms < tonumber(topics[i + 1]) or look.work >= V.sort_work then break end
    visit_unread(look, topics[i], function(ref, fields)
      last_seen = ref
      if is_passed_over(look, ref, fields) then return look.work >= V.sort_work end
      if not found or ref < found then found = ref end
      return true
    end)
  end
  return found or look.work >= V.sort_work and last_seen or nil
end
