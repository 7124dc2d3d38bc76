--- log_front: the unread end of one topic's log, read in steps that the sizes of the bodies bound.
--- @include ref, message_life

-- How many entries of a log were small enough to be read at once when it was read last, by its key; under `number` how many logs there are.
local usual_batches = {} -- kept over calls

local function number_read(out)
  return out.entries and #out.entries or #out.refs
end

local function size_of_fields(fields)
  local bytes = #fields[2]
  if not fields[3] then return bytes end
  for i = 4, #fields, 2 do bytes = bytes + #fields[i] end
  return bytes
end

local function keep_usual_batch(log, batch)
  local number = usual_batches.number or 0
  if not usual_batches[log] then
    if number == 200 then usual_batches, number = {}, 0 end
    usual_batches.number = number + 1
  end
  usual_batches[log] = batch
end

-- One topic's next entries, and one more, to know whether it ends there; the batch grows only when the bodies turned
-- out small.
local function refill_front(front, wanted)
  local count = math.min(wanted, front.batch) + 1
  front.at = 1
  local entries, bytes, is_plain = call('XRANGE', front.log, '(' .. front.id, '+', 'COUNT', count), 0, true
  local number = #entries
  front.entries, front.done = entries, number < count
  for i = 1, number do
    local fields = entries[i][2]
    if fields[3] or fields[1] ~= F.body then
      bytes, is_plain = bytes + size_of_fields(fields), false
    else
      bytes = bytes + #fields[2]
    end
  end
  front.bytes, front.is_plain = bytes, is_plain
  if number == 0 then return end
  front.batch = math.max(2, math.floor(V.bytes * number / (4 * math.max(bytes, 1))))
  local usual = math.min(front.batch, V.first_look)
  if usual_batches[front.log] ~= usual then keep_usual_batch(front.log, usual) end
end

-- The first look is small, since the bodies may be large, unless those of this log were small the last time. What a queue with groups has listed
-- is behind it (listing.lua).
local function open_front(queue, topic, wanted)
  local cursor, log = call('HGET', K.cursors(queue.name), topic) or '0-0 0', K.log(topic)
  if queue.listed and topic == queue.topic then
    local listed = string.match(queue.listed, '^%d+ (%S+ %d+)')
    if order_of(string.match(listed, '^%S+')) > order_of(string.match(cursor, '^%S+')) then cursor = listed end
  end
  local space = string.find(cursor, ' ', 1, true)
  local front = {topic = topic, log = log, id = string.sub(cursor, 1, space - 1), count = tonumber(string.sub(cursor, space + 1)), batch = usual_batches[log] or 4, at = 1, entries = false,
    done = false, read = false, make_ref = false,
    bytes = 0, is_plain = false}
  refill_front(front, wanted)
  return front
end

-- The front's next entries as they are, while the bytes last; false where one of them is more than a body.
local function take_plain_entries(front, count, out, budget)
  local entries, taken, bytes = front.entries, out.entries, budget.bytes
  local last, number = math.min(count, #entries), #taken
  if front.is_plain and front.at == 1 and bytes + front.bytes * budget.weight < V.bytes then
    bytes = bytes + front.bytes * budget.weight
    for i = last + 1, #entries do bytes = bytes - #entries[i][2][2] * budget.weight end
  else
    for i = 1, last do
      local fields = entries[i][2]
      if #fields ~= 2 or fields[1] ~= F.body then return false end
      bytes = bytes + #fields[2] * budget.weight
      if bytes >= V.bytes then last = i break end
    end
  end
  if number == 0 then
    out.entries = {unpack(entries, 1, last)}
  else
    for i = 1, last do taken[number + i] = entries[i] end
  end
  budget.bytes, front.at, front.id, front.count, front.read = bytes, last + 1, entries[last][1], front.count + last, true
  return true
end

-- Gives entries that were taken as they are what others have: refs, fields and deliveries.
local function spell_out_entries(out, topic)
  if not out.entries then return end
  local make_ref = ref_maker(topic)
  for i, entry in ipairs(out.entries) do
    out.refs[i], out.fields[i], out.deliveries[i] = make_ref(entry[1]), entry[2], '1'
  end
  out.entries = nil
end

-- The same where each is a body alone and none is in `ahead`.
local function take_bodies(front, last, out, budget)
  local entries, number, make_ref, weight, bytes = front.entries, #out.refs, front.make_ref, budget.weight, budget.bytes
  local refs, fields, deliveries, ids = out.refs, out.fields, out.deliveries, out.ids
  for i = front.at, last do
    local entry = entries[i]
    local body = entry[2]
    number = number + 1
    refs[number], fields[number], deliveries[number], ids[number] = make_ref(entry[1]), body, '1', entry[1]
    bytes = bytes + #body[2] * weight
    if bytes >= V.bytes then
      last = i
      break
    end
  end
  budget.bytes = bytes
  return last
end

-- Hands out the front's next entries, while the bytes last; those in `ahead` were settled before the queue came here.
-- What is given to be judged weighs more than its bytes. Where the log is only looked through, `read` of the budget has all that was met, and
-- what of it is in `ahead` stays there.
local function take_from_front(queue, front, count, out, budget, ahead)
  front.make_ref = front.make_ref or ref_maker(front.topic)
  local entries, at, number, make_ref = front.entries, front.at, #out.refs, front.make_ref
  local refs, fields, deliveries, ids = out.refs, out.fields, out.deliveries, out.ids
  local last, read = math.min(at + count, #entries + 1) - 1, budget.read
  local is_quick, noted = ahead == 0 and front.is_plain, {}
  if read and ahead > 0 then
    for i = at, last do noted[i - at + 1] = make_ref(entries[i][1]) end
    noted = noted[1] and call('HMGET', K.ahead(queue.name), unpack(noted)) or noted
  end
  if is_quick then last = take_bodies(front, last, out, budget) end
  for i = is_quick and last + 1 or at, last do
    local entry = entries[i]
    local ref = make_ref(entry[1])
    if read and ahead > 0 then
      read.refs[#read.refs + 1], read.ids[#read.ids + 1] = ref, entry[1]
      if noted[i - at + 1] then read.noted[ref] = true end
    end
    if read and noted[i - at + 1] or not read and ahead > 0 and call('HDEL', K.ahead(queue.name), ref) == 1 then
      if not read then ahead = ahead - 1 end
      -- Skipping is work too: a thousand of these are a call's share.
      budget.bytes = budget.bytes + V.bytes / 1000
    else
      number = number + 1
      refs[number], fields[number], deliveries[number], ids[number] = ref, entry[2], '1', entry[1]
      if #entry[2] > 2 and not out.special then out.special = has_delivery_options(entry[2]) end
      budget.bytes = budget.bytes + size_of_fields(entry[2]) * budget.weight
      if budget.bytes >= V.bytes then
        last = i
        break
      end
    end
  end
  front.at, front.id, front.count, front.read = last + 1, entries[last][1], front.count + last - at + 1, true
  return ahead
end

local function save_cursor(queue, front)
  if not front.read then return end
  call('HSET', K.cursors(queue.name), front.topic, front.id .. ' ' .. string.format('%d', front.count))
end

-- A queue with one topic reads its log straight. ahead: how many refs beyond the cursor are settled. With `out.entries` they are left as
-- they are while that is possible: what becomes one lease needs no ref of each.
local function read_log(queue, out, wanted, budget, ahead, front)
  front = front or open_front(queue, queue.topic, wanted)
  local read = budget.read
  if read then
    read.from, read.number = front.id, front.count
    -- All that is met is given.
    if ahead == 0 then read.refs, read.ids = out.refs, out.ids end
  end
  while number_read(out) < wanted and budget.bytes < V.bytes do
    local left = wanted - number_read(out)
    if not front.entries[front.at] and not front.done then refill_front(front, left) end
    if not front.entries[front.at] then break end
    if not out.entries or not take_plain_entries(front, left, out, budget) then
      spell_out_entries(out, queue.topic)
      ahead = take_from_front(queue, front, math.min(left, #front.entries), out, budget, ahead)
    end
  end
  if not read then save_cursor(queue, front) end
  -- An entry that was read along says without another look that more waits.
  out.more = front.entries[front.at] ~= nil
  out.exhausted = front.done and not out.more
end
