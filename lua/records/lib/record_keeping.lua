--- record_keeping: what a publish to a topic with a key does for its records. Included as `record_keeping()`.
--- @include fail, key_reading, timetable

-- A record with a change merged into it; its size is bounded as that of what is published.
local function merged_body(records, base, change, message)
  local beyond = merge_excess(base, records.topic) or merge_excess(change, records.topic)
  charge_reading(2 * (#base + #change))
  local merged = not beyond and merge_json(base, change) or base
  if #merged > V.small_body and #merged > body_limit(records.topic) then beyond = 'limit' end
  if beyond then fail(E.UNREAD_BODY, {topic = records.topic, message = message, beyond = beyond, bytes = #merged}) end
  return merged
end

-- Before anything is written: the key of each message that is new, and its body, merged into the record if it is a change
-- of one. shape, values, first, from, to: as of a recording.
local function open_keeping(topic, shape, values, first, from, to, now)
  local records = open_records(topic)
  -- Lost by somebody else: it is a topic without records until it gets its key anew.
  if not records then return nil end
  records.at_end, records.keys, records.bodies = is_log_read(records), {}, {}
  local merges, latest = string.byte(shape) == 109, {}
  if merges and records.format then fail(E.DELTA_NOT_JSON, {topic = topic}) end
  if merges and not records.at_end then fail(E.RECORDS_BEHIND, {topic = topic}) end
  for i = from, to do
    local body = values[first + i * #shape]
    local key = read_message_key(records, body, i)
    if merges then
      local former = not latest[key] and record_of(records, key, now)
      local base = latest[key] or former and body_of_record(former)
      body = base and merged_body(records, base, body, i) or body
      latest[key] = body
    end
    records.keys[i], records.bodies[i] = key, body
  end
  return records
end

-- A message without a life of its own gets its topic's, so that its queues see it; true if it did.
local function stamp_life(records, fields)
  if records.life == 0 or delivery_options_of(fields) then return false end
  fields[#fields + 1], fields[#fields + 2] = F.expiration, string.format('%.0f', records.life)
  return true
end

local function keep_message(records, i, id, fields)
  if records.at_end then put_record(records, records.keys[i], id, fields) end
end

-- What somebody else wrote before comes first: then the records follow the log later.
local function close_keeping(records, last, now)
  if records.at_end then
    save_records(records, last)
  else
    add_due(now, 'records ' .. records.topic, 'LT')
  end
end
