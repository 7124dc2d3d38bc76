--- check_copies: what is kept beside a topic's log about copies and what is told of them, against the log: a part of it.
--- ARGV now, topic, after, repair
--- GIVES {where to go on or '' at the end, bookmarks that are not found, copies beyond `received`, what is told in vain, wrong bookmarks
--- that count, requests of no queue}
--- FLAGS allow-oom
--- @include clock, fail, copies, received_positions, source, deferred_entries, incarnations, deferred_apply()
-- What is wrong is mended with repair 1. At the end also what is of no entry.
local ms, stream = clock_ms(now), 'log ' .. topic
local missing, behind, vain, wrong, strays = 0, 0, 0, 0, 0
local is_mending, reached = repair == '1', {}

local function check_bookmark(source, here)
  local origin, id = string.match(source, '^([^~]*)~(.*)$')
  if id == V.last_id then return end
  if copy_of(topic, origin, id) ~= here and not is_recorded_here(K.log(topic), origin, id) then
    missing = missing + 1
    if is_mending then note_copies(topic, origin, {id, here}) end
  end
  reached[origin] = reached[origin] or {received_of(stream, origin)}
  if order_of(id) > order_of(reached[origin][1]) and not is_former_incarnation(origin) then
    behind = behind + 1
    -- Links bring an origin's messages in their order.
    if is_mending then note_received(stream, origin, id, reached[origin][2] or '-') end
  end
end

-- What is told of a message that is here, or never comes, waits for nothing.
local function check_told()
  local routed, own = call('HGET', K.routes(), topic) or '', names_of_instance().origin
  drop_deferred(topic, function(field)
    local origin, id = string.match(field, ' ([^ ~]+)~(%S+)$')
    local here = copy_of(topic, origin, id)
    if not here and origin ~= own and order_of(id) > order_of((received_of(stream, origin))) then return false end
    vain = vain + 1
    if is_mending and here then deferred_apply().apply_deferred(topic, routed, origin, {id, here}, ms) end
    return is_mending
  end)
end

local function is_lower(source, other)
  local origin, id = string.match(source, '^([^~]*)~(.*)$')
  local other_origin, other_id = string.match(other, '^([^~]*)~(.*)$')
  local one, two = order_of(id), order_of(other_id)
  return one < two or one == two and origin < other_origin
end

local function note_counting(here, expected)
  local field = topic .. ' ' .. here
  if (call('HGET', K.counting(), field) or nil) == expected then return end
  wrong = wrong + 1
  if is_mending and expected then call('HSET', K.counting(), field, expected) end
  if is_mending and not expected then call('HDEL', K.counting(), field) end
end

local function check_same()
  local lowest = {}
  for _, row in ipairs(call('XRANGE', K.same(topic), '-', '+')) do
    local here, source = row[2][2], row[2][4]
    local entry = here ~= V.first_id and call('XRANGE', K.log(topic), here, here)[1]
    if entry then
      check_bookmark(source, here)
      local own = source_of(entry[2]) or origin_at(here) .. '~' .. here
      if is_lower(source, lowest[here] or own) then lowest[here] = source end
    end
  end
  for here, source in pairs(lowest) do note_counting(here, source) end
  for _, field in ipairs(call('HKEYS', K.counting())) do
    local name, here = string.match(field, '^(%S+) (%S+)$')
    if name == topic and not lowest[here] and not call('XRANGE', K.log(topic), here, here)[1] then note_counting(here, nil) end
  end
end

local function check_requests()
  for _, row in ipairs(call('XRANGE', K.requests(), '-', '+', 'COUNT', V.requests)) do
    local facts = {}
    for i = 1, #row[2], 2 do facts[row[2][i]] = row[2][i + 1] end
    if not (facts[F.queues] and (facts[F.bookmarks] or facts[F.wishes])) or call('EXISTS', K.queue(facts[F.queues])) == 0 then
      strays = strays + 1
      if is_mending then call('XDEL', K.requests(), row[1]) end
    end
  end
end

local entries = call('XRANGE', K.log(topic), '(' .. after, '+', 'COUNT', V.batch)
for _, entry in ipairs(entries) do
  local source = source_of(entry[2])
  if source then check_bookmark(source, entry[1]) end
end
if #entries == V.batch then return {entries[#entries][1], missing, behind, 0, 0, 0} end
check_same()
check_told()
check_requests()
return {'', missing, behind, vain, wrong, strays}
