--- sort_step: read the next messages of a queue and put each in its place, by priority and by the filters that it matches.
--- @include judging_plan, next_messages, batch, deliverable, timetable

-- What one step found: score and member by index, prefixes of large priorities, refs to hold behind a barrier, what is not
-- to be delivered, and, where the order is not that of arrival, when lives end.
local function empty_finds(plan)
  local found = {
    indexes = {[V.none] = {}}, prefixes = {}, held = {}, refused = 0, scheduled = {}, over = {}, lives = {}, remote = {},
    entered = 0,
  }
  for _, id in ipairs(plan.filters) do found.indexes[id] = {} end
  return found
end

local function add_place(list, score, member)
  local number = #list
  list[number + 1], list[number + 2] = score, member
end

local function find_index_places(plan, ref, document, found)
  local score, member, known = 0, ref, expression_language()
  if plan.trees.priority then
    local prefix
    score, prefix = known.expression_priority(compiled_tree(plan, 'priority'), document)
    if prefix ~= '' then
      add_place(found.prefixes, ref, prefix)
      member = prefix .. ref
    end
  end
  add_place(found.indexes[V.none], score, member)
  for _, id in ipairs(plan.filters) do
    if known.expression_matches(compiled_tree(plan, id), document) then
      add_place(found.indexes[id], score, member)
    end
  end
end

local function save_index_places(queue, found)
  for id, places in pairs(found.indexes) do call_in_batches('ZADD', K.sorted(queue.name, id), places) end
  call_in_batches('HSET', K.places(queue.name), found.prefixes)
  call_in_batches('ZADD', K.held(queue.name), found.held)
  call_in_batches('ZADD', K.remote(queue.name), found.remote)
  call_in_batches('ZADD', K.lives(queue.name), found.lives)
  for i = 1, #found.lives, 2 do add_due(found.lives[i], 'expiry ' .. queue.name, 'LT') end
  schedule_messages(queue, found.scheduled)
  expire_read(queue, found.over)
  if found.refused > 0 then call('HINCRBY', K.queue(queue.name), F.filtered, found.refused) end
end

-- What was read straight from the logs stands behind all others, where there is no priority: it is kept in `plan.fresh`
-- while the call lasts, and what is given at once is never written. given: member -> true.
local function save_fresh(queue, plan, given)
  for id, places in pairs(plan.fresh.indexes) do
    local left = places
    if next(given) then
      left = {}
      for i = 2, #places, 2 do
        if not given[places[i]] then add_place(left, 0, places[i]) end
      end
    end
    call_in_batches('ZADD', K.sorted(queue.name, id), left)
  end
  plan.fresh = empty_finds(plan)
end

-- Where a message belongs that the queue takes in.
local function find_entered(queue, plan, ref, document, returned, ends, found)
  if #found.held > 0 or plan.trees.barrier and judge(plan, 'barrier', document) then
    add_place(found.held, 0, ref)
    return
  end
  find_index_places(plan, ref, document, (returned or plan.trees.priority) and found or plan.fresh)
  if ends and queue.life > 0 and plan.trees.priority then add_place(found.lives, ends, ref) end
  -- What was in the queue before it became a ring does not count as entering.
  if returned or ref > plan.ring_from then found.entered = found.entered + 1 end
end

-- A function that finds the place of a message by what its body holds alone, as `find_by_document` does otherwise. It gives false, and nothing
-- is done, where that does not tell.
local function quick_finder(plan, quick, found)
  local language = expression_language()
  local match, score_of_root, filters, ids = language.quick_match, language.quick_score, quick.filters, plan.filters
  local entry, barrier, priority, held, ring_from = quick.entry, quick.barrier, quick.priority, found.held, plan.ring_from
  local fresh, returned_ones = (priority and found or plan.fresh).indexes, found.indexes
  return function(ref, root, returned)
    if entry and not returned then
      local entered = match(entry(root))
      if entered == nil then return false end
      if not entered then
        found.refused = found.refused + 1
        return true
      end
    end
    if barrier and (held[1] or match(barrier(root)) ~= false) then return false end
    local score, indexes, matching = 0, returned and returned_ones or fresh, nil
    if priority then
      score = score_of_root(priority(root))
      if not score then return false end
    end
    for i = 1, #filters do
      local matches = match(filters[i](root))
      if matches == nil then return false end
      if matches then
        matching = matching or {}
        matching[#matching + 1] = indexes[ids[i]]
      end
    end
    add_place(indexes[V.none], score, ref)
    for i = 1, matching and #matching or 0 do add_place(matching[i], score, ref) end
    if returned or ref > ring_from then found.entered = found.entered + 1 end
    return true
  end
end

-- The barrier whose turn it is not yet; what was read behind it is held with it.
local function waiting_barrier(queue)
  return call('ZRANGE', K.held(queue.name), 0, 0)[1]
end

-- What becomes of a message that is read. fate: as `fate_of` gives it.
local function find_by_document(queue, plan, ref, fields, document, returned, fate, found, read)
  local trees, kind, at = plan.trees, fate.fate, fate.at
  if kind == 'elsewhere' then
    read[ref] = nil
  elseif trees.entry and not returned and not judge(plan, 'entry', document) then
    found.refused = found.refused + 1
  elseif kind == V.remote and not (trees.barrier and judge(plan, 'barrier', document)) then
    add_place(found.remote, 0, ref)
  elseif kind == V.scheduled then
    local number = #found.scheduled
    found.scheduled[number + 1], found.scheduled[number + 2] = ref, at
    found.scheduled[number + 3] = fate.ends_later or false
  elseif kind == V.expired then
    found.over[#found.over + 1] = ref
  else
    find_entered(queue, plan, ref, document, returned, at, found)
    read[ref] = fields
  end
  charge_work(plan, document, #plan.filters + 2)
end

-- wanted: most messages; from_log: most of them from the logs. read: ref -> fields of what was read in this call, so that
-- it is not read again when it is delivered. What was ready passed the queue's filter when it came from the log.
-- All that is read is judged, whatever work it turns out to be, so the bytes of one step are few, and the fewer the more filters there
-- are; values of MessagePack may be a byte each. Later steps of a call are as large as the work of the former one allows.
-- Returns how many were read and whether the end of every log was seen.
local function sort_step(queue, plan, wanted, from_log, barrier, now, read)
  local weight, before = plan.weight or (queue.format and 150 or 50) * (1 + #plan.filters), plan.spent.work
  local messages = next_messages(queue, wanted, {from_log = from_log, unwritten = #plan.fresh.indexes[V.none] / 2,
    weight = weight, barrier = barrier})
  local found, refs = empty_finds(plan), messages.refs
  local quick = refs[1] and quick_trees(plan)
  local roots, find_quickly = roots_of(plan, messages.fields), quick and quick_finder(plan, quick, found)
  local number, size = 0, 0
  for i = 1, #refs do
    local ref, fields, root, returned = refs[i], messages.fields[i], roots[i], i <= messages.returned
    local fate, at, ends_later = nil, nil, nil
    if queue.fated or #fields > 2 then fate, at, ends_later = fate_of(queue, ref, fields, returned, now) end
    if quick and root and not fate and not at and find_quickly(ref, root, returned) then
      read[ref], number, size = fields, number + 1, size + #fields[2]
    else
      local id = messages.ids[i]
      local topic = id and queue.topic ~= '' and queue.topic
      local document = document_of(plan, ref, fields, returned and messages.deliveries[i] - 1 or 0, now, topic, id, root)
      find_by_document(queue, plan, ref, fields, document, returned, {fate = fate, at = at, ends_later = ends_later}, found, read)
    end
  end
  if number > 0 then charge_quick_work(plan, number, size, #plan.filters + 2, quick.work) end
  if messages.bytes > 0 then
    local left = math.max(V.sort_work - plan.spent.work, 50)
    plan.weight = math.max(20, (plan.spent.work - before) / left * V.bytes * weight / messages.bytes)
  end
  plan.entered = plan.entered + found.entered
  call_in_batches('HDEL', K.places(queue.name), {unpack(messages.refs, 1, messages.returned)})
  save_index_places(queue, found)
  return #messages.refs, messages.exhausted
end
