--- publish_once: record those messages of one topic whose IDs were not published to it within their windows.
--- ARGV now, name, window, shape, count, values...
--- FAIL UNKNOWN_TOPIC, TOO_MANY_DEDUPLICATION_IDS, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES {topic, first ID or '', of each message the bookmark of the first with its ID, or '' where it was recorded...}
--- @include clock, fail, publish_target, log_rights, recording, deduplication, incarnations
-- count: of messages. values: an ID for each of them, '' for none, then their values as of publish, in turn. window: for how long the
-- IDs of those that are recorded are known, ms. Messages that are recorded have IDs that follow each other.
local ms = clock_ms(now)
local topic, route = target_of(name)
local number, until_ms = tonumber(count), string.format('%.0f', ms + window)
local ids, values_at = {unpack(ARGV, values_from, values_from + number - 1)}, values_from + number

-- Of each message the ID of the entry that is there, or the number of the message of this call that it repeats; of those to be
-- recorded neither. Gives their values, too.
local function sort_out(known)
  local there, fresh, values, numbers, new_ids = {}, 0, {}, {}, 0
  for i = 1, number do
    local id = ids[i]
    local ends, entry_id = string.match(id ~= '' and known[i] or '', '^(%d+) (%S+)$')
    if ends and tonumber(ends) > ms then
      there[i] = entry_id
    elseif numbers[id] then
      there[i] = numbers[id]
    else
      fresh = fresh + 1
      if id ~= '' then numbers[id], new_ids = fresh, new_ids + 1 end
      for k = 0, #shape - 1 do values[#values + 1] = ARGV[values_at + (i - 1) * #shape + k] end
    end
  end
  return there, fresh, values, numbers, new_ids
end

local function most_ids()
  local definition = call('HGET', K.topics(), topic)
  return definition and cjson.decode(definition).deduplication_ids or V.deduplication_ids
end

local function check_room(new_ids)
  local live, most = call('ZCOUNT', K.windows(topic), '(' .. ms, '+inf'), most_ids()
  if live + new_ids <= most then return end
  local first = call('ZRANGE', K.windows(topic), '(' .. ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  fail(E.TOO_MANY_DEDUPLICATION_IDS, {topic = topic, ids = live, most = most,
    frees_in = first[2] and math.ceil(first[2] - ms) or 0})
end

local there, fresh, values, numbers, new_ids = sort_out(call('HMGET', K.deduplicated(topic), unpack(ids)))
check_log(topic)
if new_ids > 0 then check_room(new_ids) end
local recording = fresh > 0 and open_recording(topic, route, shape, values, 1, 0, fresh - 1, '', 0, ms)
end_windows(topic, ms, 2 * V.batch)
local first, prefix, sequence = '', nil, nil
if recording then
  first = record_messages(recording)
  prefix, sequence = string.match(first, '^(%d+%-)(%d+)$')
end

local function recorded_id(position)
  return prefix .. string.format('%.0f', sequence + position - 1)
end

if new_ids > 0 then
  local windows, entries = {}, {}
  for id, position in pairs(numbers) do
    windows[#windows + 1], windows[#windows + 2] = until_ms, id
    entries[#entries + 1], entries[#entries + 2] = id, until_ms .. ' ' .. recorded_id(position)
  end
  call_in_batches('ZADD', K.windows(topic), windows)
  call_in_batches('HSET', K.deduplicated(topic), entries)
  schedule_windows(topic, ms)
end
if recording then push_recorded(recording, first) end
local reply = {topic, first}
for i = 1, number do
  local id = type(there[i]) == 'number' and recorded_id(there[i]) or there[i]
  reply[i + 2] = id and topic .. '~' .. origin_at(id) .. '~' .. id or ''
end
return reply
