--- sort: read the next messages of a queue and put each in its place, by priority and by the filters that it matches.
--- @include plan, waiting, batch

-- What one step found: score and member by index, prefixes of large priorities, refs to hold behind a barrier.
local function no_finds(plan)
  local found = {indexes = {[V.none] = {}}, prefixes = {}, held = {}, refused = 0}
  for _, id in ipairs(plan.filters) do found.indexes[id] = {} end
  return found
end

local function add_place(list, score, member)
  local number = #list
  list[number + 1], list[number + 2] = score, member
end

local function find_place(plan, ref, document, found)
  local score, prefix = 0, ''
  if plan.trees.priority then
    score, prefix = plan.language.expression_priority(compiled_tree(plan, 'priority'), document)
    if prefix ~= '' then add_place(found.prefixes, ref, prefix) end
  end
  local member = prefix .. ref
  add_place(found.indexes[V.none], score, member)
  for _, id in ipairs(plan.filters) do
    if judge(plan, id, document) then add_place(found.indexes[id], score, member) end
  end
end

local function save_places(queue, found, returned)
  call_in_batches('HDEL', K.places(queue.name), returned)
  for id, places in pairs(found.indexes) do call_in_batches('ZADD', K.sorted(queue.name, id), places) end
  call_in_batches('HSET', K.places(queue.name), found.prefixes)
  call_in_batches('ZADD', K.held(queue.name), found.held)
  if found.refused > 0 then call('HINCRBY', K.queue(queue.name), F.filtered, found.refused) end
end

-- wanted: most messages; from_log: most of them from the logs. read: ref -> fields of what was read in this call, so that
-- it is not read again when it is delivered. What was ready passed the queue's filter when it came from the log.
-- Returns how many were read and whether the end of every log was seen.
local function sort_some(queue, plan, wanted, from_log, now, read)
  local messages, found = next_messages(queue, wanted, from_log), no_finds(plan)
  for i, ref in ipairs(messages.refs) do
    local fields = messages.fields[i]
    local document = document_of(plan, ref, fields, messages.deliveries[i] - 1, now)
    if i > messages.returned and plan.trees.entry and not judge(plan, 'entry', document) then
      found.refused = found.refused + 1
    elseif #found.held > 0 or plan.trees.barrier and judge(plan, 'barrier', document) then
      add_place(found.held, 0, ref)
    else
      find_place(plan, ref, document, found)
      read[ref] = fields
    end
    bill(plan, document, #plan.filters + 2)
  end
  save_places(queue, found, {unpack(messages.refs, 1, messages.returned)})
  return #messages.refs, messages.exhausted
end
