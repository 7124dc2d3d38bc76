--- records: the state of the world of a topic with a key: its last message by key, kept as its log says.
-- Included as `records()`. Records follow the log by a cursor, `read_to`. Whoever writes into the log at the end to which they were
-- read also writes them; where somebody else wrote before, they are left to whoever reads the log next, in its order.
--- @include record_text, record_key, json_merge, batch, message_life, timetable

-- pending: key -> text of its record, or false of one that is gone; written by `save_records`.
local function open_records(topic)
  local found = call('HMGET', K.sow(topic), F.paths, F.life, F.read_to, F.keyless, F.format)
  if not found[1] then return nil end
  return {
    topic = topic, paths = found[1], life = tonumber(found[2]), read_to = found[3], keyless = tonumber(found[4] or 0),
    format = found[5] ~= '' and found[5] or nil, pending = {},
  }
end

local function is_log_read(records)
  return #call('XRANGE', K.log(records.topic), '(' .. records.read_to, '+', 'COUNT', 1) == 0
end

local function key_in(records, fields)
  records.key = records.key or compile_key(records.paths)
  return key_of(records.key, records.topic, records.format, fields)
end

-- The record of a key, those not written yet included; nil where there is none any more.
local function record_of(records, key, now)
  local text = records.pending[key]
  if text == nil then text = call('HGET', K.records(records.topic), key) end
  if not text or is_record_over(text, now) then return nil end
  return text
end

local function put_record(records, key, id, fields)
  local own, due = delivery_options_of(fields)
  own = own or records.life > 0 and records.life or nil
  local ends = own and own + begin_of_life(string.match(id, '^%d+'), due)
  records.pending[key] = record_text(id, fields, ends)
end

local function save_ends(records, ends, gone)
  local key = K.ends(records.topic)
  if gone[1] and call('EXISTS', key) == 1 then call_in_batches('ZREM', key, gone) end
  if not ends[1] then return end
  call_in_batches('ZADD', key, ends)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  add_due(first, 'records ' .. records.topic, 'LT')
end

-- Writes what is pending; the log is read up to `id`.
local function save_records(records, id)
  local put, removed, ends, endless = {}, {}, {}, {}
  for key, text in pairs(records.pending) do
    local over = text and end_of_record(text)
    if text then put[#put + 1], put[#put + 2] = key, text else removed[#removed + 1] = key end
    if over then
      ends[#ends + 1], ends[#ends + 2] = over, key
    else
      endless[#endless + 1] = key
    end
  end
  call_in_batches('HDEL', K.records(records.topic), removed)
  call_in_batches('HSET', K.records(records.topic), put)
  save_ends(records, ends, endless)
  call('HSET', K.sow(records.topic), F.read_to, id, F.keyless, records.keyless)
  records.pending, records.read_to = {}, id
end

-- One entry of the log: an end of a record, a message for one queue alone, or a message. Gives the work of reading it.
local function follow_entry(records, id, fields)
  local _, _, addressed = delivery_options_of(fields)
  if addressed == V.nowhere then
    for i = 3, #fields, 2 do
      if fields[i] == F.record then records.pending[fields[i + 1]] = false end
    end
  elseif not addressed then
    local key, _, _, work = key_in(records, fields)
    if key then put_record(records, key, id, fields) else records.keyless = records.keyless + 1 end
    return work
  end
  return 0
end

-- One bounded step of reading the log on; true when that came to its end.
local function follow_log(records)
  local id, number, bytes, step, ended, work = records.read_to, 0, 0, 4, false, 0
  while not ended and number < V.batch and bytes < V.bytes / 2 and work < V.key_work do
    local entries = call('XRANGE', K.log(records.topic), '(' .. id, '+', 'COUNT', step)
    for _, entry in ipairs(entries) do
      work = work + follow_entry(records, entry[1], entry[2])
      id, number = entry[1], number + 1
      for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
      if work >= V.key_work then break end
    end
    ended = #entries < step and work < V.key_work
    step = math.max(4, math.min(V.batch - number, 128, math.floor(V.bytes * number / (8 * math.max(bytes, 1)))))
  end
  if id ~= records.read_to then save_records(records, id) end
  return ended
end
