--- record_ends: records that end: deleted, or over. That is told in the topic's log, by entries that no queue takes.
--- @include entry_ids, records, timetable

-- Writes the ends of records, which are there, after all that was in the log. publisher: pairs of fields, or none.
local function end_records(records, keys, how, publisher, now)
  if not keys[1] then return nil end
  local function add(run, id, i)
    return run('XADD', K.log(records.topic), id, F.body, '', F.addressed, V.nowhere, F.ended, how, F.record, keys[i],
      unpack(publisher))
  end
  local _, last = record_entries(K.log(records.topic), now, 1, #keys, add)
  for _, key in ipairs(keys) do records.pending[key] = false end
  save_records(records, last)
  return last
end

-- The keys of records that are over, as many as a call's bytes allow; what is noted wrongly is noted anew.
local function ended_keys(records, now)
  local over, bytes = {}, 0
  for _, key in ipairs(call('ZRANGE', K.ends(records.topic), '-inf', now, 'BYSCORE', 'LIMIT', 0, V.batch)) do
    if bytes >= V.bytes then break end
    local text = call('HGET', K.records(records.topic), key)
    local ends = text and end_of_record(text)
    bytes = bytes + (text and #text or 0)
    if ends and ends <= now then
      over[#over + 1] = key
    elseif ends then
      call('ZADD', K.ends(records.topic), ends, key)
    else
      call('ZREM', K.ends(records.topic), key)
    end
  end
  return over
end

-- The next step of a topic's records: they follow the log, and what is over ends.
local function pass_records(topic, now)
  local records = open_records(topic)
  if not records then return end
  local at_end = follow_log(records)
  if at_end then end_records(records, ended_keys(records, now), V.expired, {}, now) end
  local first = at_end and call('ZRANGE', K.ends(topic), 0, 0, 'WITHSCORES')[2] or not at_end and now
  if first then add_due(first, 'records ' .. topic, 'LT') end
end
