--- detailed_recording: recording messages of which more is said than their bodies. Included as `detailed_recording()`.
--- @include entry_ids, message_times()

-- For each letter of a shape behind the body, the field that its value is recorded in.
local function field_of_letter(letter)
  if letter == 'h' then return F.headers end
  if letter == 'e' then return F.expiration end
  if letter == 'g' then return F.in_group end
  return letter == 'd' and F.due or F.routing_key
end

local function entry_of_values(recording, i)
  local shape, kept, values = recording.shape, recording.kept, recording.values
  local at = recording.first + i * #shape
  local entry, is_timed = {F.body, kept and kept.bodies[i] or values[at]}, false
  for k = 2, #shape do
    local letter, value = string.sub(shape, k, k), values[at + k - 1]
    if letter == 'd' and string.sub(value, 1, 1) == '+' then
      value = string.format('%.0f', recording.ms + string.sub(value, 2))
    end
    if value ~= '' then
      entry[#entry + 1], entry[#entry + 2] = field_of_letter(letter), value
      is_timed = is_timed or letter == 'e' or letter == 'd'
    end
  end
  if kept and recording.keeper.stamp_life(kept, entry) then is_timed = true end
  if recording.publisher ~= '' then
    local n = #entry
    entry[n + 1], entry[n + 2], entry[n + 3] = F.publisher, recording.publisher, F.sequence
    entry[n + 4] = string.format('%.0f', recording.sequence + i)
    if i == recording.from and recording.after then entry[n + 5], entry[n + 6] = F.after, recording.after end
  end
  return entry, is_timed
end

-- Bodies of a publisher, and nothing else: most of what jobs write.
local function record_numbered(recording, log)
  local values, first, publisher, sequence = recording.values, recording.first, recording.publisher, recording.sequence
  local function add(run, id, i)
    return run('XADD', log, id, F.body, values[first + i], F.publisher, publisher, F.sequence, sequence + i)
  end
  return record_entries(log, recording.ms, recording.from, recording.to, add)
end

local function record_detailed(recording, log)
  if recording.shape == 'b' and not recording.kept and not recording.after then return record_numbered(recording, log) end
  local kept, timed, ms = recording.kept, {}, recording.ms
  local function add(run, id, i)
    local entry, is_timed = entry_of_values(recording, i)
    if is_timed then timed[i] = {id = id, fields = entry} end
    if kept then recording.keeper.keep_message(kept, i, id, entry) end
    return run('XADD', log, id, unpack(entry))
  end
  local first, last = record_entries(log, ms, recording.from, recording.to, add)
  if kept then recording.keeper.close_keeping(kept, last, ms) end
  if next(timed) then message_times().note_times(recording.topic, recording.route, timed, recording.from, recording.to, ms) end
  return first, last
end
