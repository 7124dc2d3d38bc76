--- messages_before: what comes before one message of a queue, and the first barrier there that the queue has not read.
--- @include explain_facts

local function count_unread_before(look, ref, visit)
  local topics, count = unread_topics(look.queue), 0
  for i = 1, #topics, 2 do
    if look.work >= V.sort_work then break end
    visit_unread(look, topics[i], function(other, fields)
      if other >= ref then return true end
      if not is_passed_over(look, other, fields) then
        count = count + 1
        if visit then visit(other, fields) end
      end
      return look.work >= V.sort_work
    end)
  end
  return count
end

-- A barrier that the queue has not come to is met on the way.
local function find_unread_barrier(look, ref)
  local plan, found = look.plan, nil
  local count = count_unread_before(look, ref, function(other, fields)
    if found and found < other then return end
    local document = document_of(plan, other, fields, 0, look.ms)
    look.work = look.work + 1 + expression_language().document_size(document) / 1500
    if judge(plan, 'barrier', document) then found = other end
  end)
  return count, found
end

-- Of what is ready, all with the same score.
local function rank_before(key, ref)
  return call('ZRANK', key, ref) or rank_after(key, 0, ref)
end

local function add_unread_before(look, ref, read)
  local name = look.queue.name
  if not look.plan.trees.barrier or call('EXISTS', K.held(name)) == 1 then return count_unread_before(look, ref) end
  local count, barrier = find_unread_barrier(look, ref)
  if barrier then
    add_fact(look, 'barrier', barrier)
    add_name_fact(look, barrier)
    add_fact(look, 'barrier_before', read + count_unread_before(look, barrier))
  end
  return count
end

-- How many messages come before it; `at_least` where there were too many to count.
local function add_before_facts(look, ref, where)
  local queue, name, place = look.queue, look.queue.name, look.place or {score = 0, member = ref}
  local placed = where == 'sorted' and call('ZRANK', K.sorted(name, V.none), member_of(queue, ref))
  local before = placed or rank_after(K.sorted(name, V.none), place.score, place.member)
  local read = placed or where == 'ready' or where == 'held'
  before = before + (read and rank_before(K.ready(name), ref) or call('ZCARD', K.ready(name)))
  if where == 'held' then before = before + rank_before(K.held(name), ref) end
  if where == 'waiting' then before = before + call('ZCARD', K.held(name)) + add_unread_before(look, ref, before) end
  add_fact(look, 'before', before)
  add_fact(look, 'at_least', look.work >= V.sort_work and 1)
end
