--- waiting: the next messages of a queue in order: first what is ready, then straight from the logs.
-- Three lists: refs, fields, deliveries (texts); whether it was cut short, and whether it saw the end of every log. What this returns has left `ready` or is behind the cursor.
--- @include ref, journal

local function no_messages()
  return {refs = {}, fields = {}, deliveries = {}, cut = false, exhausted = false}
end

-- One step; true when another may find more, because some of these were missing from their logs.
local function read_ready(queue, out, wanted, budget)
  local refs = call('ZRANGE', K.ready(queue.name), 0, wanted - 1)
  if #refs == 0 then return false end
  local attempts = call('HMGET', K.attempts(queue.name), unpack(refs))
  local taken, missing = {}, {}
  for i, ref in ipairs(refs) do
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    taken[i] = ref
    if entry then
      local deliveries = attempts[i] and string.match(attempts[i], '^%d+') or 0
      local number = #out.refs + 1
      out.refs[number], out.fields[number], out.deliveries[number] = ref, entry[2], string.format('%d', deliveries + 1)
      for _, text in ipairs(entry[2]) do budget.bytes = budget.bytes + #text end
      if budget.bytes > V.bytes then break end
    else
      missing[#missing + 1] = ref
    end
  end
  call('ZREM', K.ready(queue.name), unpack(taken))
  if #missing > 0 then
    call('HDEL', K.attempts(queue.name), unpack(missing))
    journal(queue.name, V.missing, '', missing)
  end
  return #missing > 0
end

local function ms_of(front)
  return tonumber(string.match(front.entries[front.at][1], '^%d+'))
end

-- One topic's next entries, and one more, to know whether it ends there; the batch grows only when the bodies turned
-- out small.
local function refill(front, wanted)
  local count = math.min(wanted, front.batch) + 1
  front.at = 1
  front.entries = call('XRANGE', K.log(front.topic), '(' .. front.id, '+', 'COUNT', count)
  front.done = #front.entries < count
  local bytes = 0
  for _, entry in ipairs(front.entries) do bytes = bytes + #entry[2][2] end
  front.batch = math.max(2, math.floor(V.bytes * #front.entries / (4 * math.max(bytes, 1))))
end

-- The first look is small, since the bodies may be large: one more XRANGE a call costs nothing that can be measured.
local function open_front(queue, topic, wanted)
  local id, count = string.match(call('HGET', K.cursors(queue.name), topic) or '0-0 0', '^(%S+) (%d+)$')
  local front = {topic = topic, id = id, count = tonumber(count), batch = 4, make_ref = ref_maker(topic)}
  refill(front, wanted)
  return front
end

local function close_front(queue, front, alone)
  if front.read then
    call('HSET', K.cursors(queue.name), front.topic, front.id .. ' ' .. string.format('%d', front.count))
  end
  if queue.topic ~= '' then return end
  local next_entry = front.entries[front.at]
  if front.done and not next_entry then
    call('ZREM', K.behind(queue.name), front.topic)
  elseif not alone then
    -- A bound that is too low is right too; it is raised where it saves looking at this topic.
    call('ZADD', K.behind(queue.name), string.match((next_entry or {front.id})[1], '^%d+'), front.topic)
  end
end

-- The front with the oldest next entry. A topic not opened yet may be older: its score in `behind` says at least when.
local function oldest_front(queue, fronts, topics, wanted)
  local oldest, order
  for i = 1, #fronts + #topics do
    if not fronts[i] then
      if oldest and ms_of(oldest) < topics[1].ms then break end
      fronts[i] = open_front(queue, table.remove(topics, 1).topic, wanted)
    end
    local front = fronts[i]
    if not front.entries[front.at] and not front.done then refill(front, wanted) end
    local entry = front.entries[front.at]
    if entry and #fronts + #topics == 1 then return front end
    if entry and front.head ~= entry then front.head, front.order = entry, order_of(entry[1]) end
    if entry and (not order or front.order < order) then oldest, order = front, front.order end
  end
  return oldest
end

-- Hands out the front's next entries, while the bytes last; those in `ahead` were settled before the queue came here.
local function emit(queue, front, count, out, budget, ahead)
  local entries, at, number, make_ref = front.entries, front.at, #out.refs, front.make_ref
  local refs, fields, deliveries = out.refs, out.fields, out.deliveries
  local last = math.min(at + count, #entries + 1) - 1
  for i = at, last do
    local entry = entries[i]
    local ref = make_ref(entry[1])
    if ahead > 0 and call('HDEL', K.ahead(queue.name), ref) == 1 then
      ahead = ahead - 1
    else
      number = number + 1
      refs[number], fields[number], deliveries[number] = ref, entry[2], '1'
      budget.bytes = budget.bytes + #entry[2][2]
      if budget.bytes >= V.bytes then
        last = i
        break
      end
    end
  end
  front.at, front.id, front.count, front.read = last + 1, entries[last][1], front.count + last - at + 1, true
  return ahead
end

-- One round over 32 topics, and more only while they may have older entries of the same millisecond; it ends where a
-- further topic may be older. True when another round may find more.
local function read_round(queue, out, wanted, budget)
  local topics, fronts, loaded, further = {}, {}, 0, nil
  local function load_topics()
    local page = queue.topic ~= '' and {queue.topic, 0}
      or call('ZRANGE', K.behind(queue.name), loaded, loaded + 32, 'WITHSCORES')
    for i = 1, math.min(#page, 64), 2 do topics[#topics + 1] = {topic = page[i], ms = tonumber(page[i + 1])} end
    further = tonumber(page[66])
    loaded = loaded + 32
  end
  load_topics()
  local ahead = #topics > 0 and call('HLEN', K.ahead(queue.name))
  while #out.refs < wanted and budget.bytes < V.bytes do
    local front = oldest_front(queue, fronts, topics, wanted - #out.refs)
    if front and further and ms_of(front) == further then
      load_topics()
    elseif not front or further and ms_of(front) > further then
      break
    else
      local alone = #fronts == 1 and #topics == 0 and not further
      ahead = emit(queue, front, alone and math.min(wanted - #out.refs, #front.entries) or 1, out, budget, ahead)
    end
  end
  out.exhausted = not further and #topics == 0
  for _, front in ipairs(fronts) do
    if not front.done or front.entries[front.at] then out.exhausted = false end
    close_front(queue, front, #fronts == 1 and #topics == 0)
  end
  return further
end

local function something_waits(queue)
  if call('EXISTS', K.ready(queue.name), K.behind(queue.name)) > 0 then return true end
  return queue.topic ~= '' and #open_front(queue, queue.topic, 1).entries > 0
end

local function next_messages(queue, wanted)
  local out, budget = no_messages(), {bytes = 0}
  for _ = 1, 4 do
    out.cut = read_ready(queue, out, wanted - #out.refs, budget)
    if not out.cut or #out.refs == wanted or budget.bytes >= V.bytes then break end
  end
  local more = not out.cut
  while more and #out.refs < wanted and budget.bytes < V.bytes do more = read_round(queue, out, wanted, budget) end
  out.cut = out.cut or budget.bytes >= V.bytes
  return out
end
