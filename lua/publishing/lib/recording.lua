--- recording: record a run of one topic's messages by that topic's rules, and push what somebody is free for.
--- @include entry_ids, fan_out, dispatch, route, record_keeping(), detailed_recording()

-- What is to be recorded, checked; fails before anything is written. shape: as of publish; values: all of them in a table,
-- the first body at `first`; messages `from` to `to`, counted from 0. publisher: '' or who numbers them, `sequence` being
-- message 0's.
local function open_recording(topic, route, shape, values, first, from, to, publisher, sequence, ms)
  local recording = {topic = topic, route = route, values = values, first = first, from = from, to = to, ms = ms}
  if shape == 'b' and publisher == '' and not keeps_records(route) then return recording end
  recording.shape, recording.publisher, recording.sequence = shape, publisher, sequence
  if keeps_records(route) then
    recording.keeper = record_keeping()
    recording.kept = recording.keeper.open_keeping(topic, shape, values, first, from, to, ms)
  end
  return recording
end

-- Returns the first ID and the last.
local function record_messages(recording)
  local log = K.log(recording.topic)
  if recording.shape then return detailed_recording().record_detailed(recording, log) end
  local values, first = recording.values, recording.first
  local function add(run, id, i)
    return run('XADD', log, id, F.body, values[first + i])
  end
  return record_entries(log, recording.ms, recording.from, recording.to, add)
end

local function push_recorded(recording, id)
  local number = recording.to - recording.from + 1
  serve_queues(recording.route, recording.topic, string.match(id, '^%d+'), recording.ms, number, dispatch_or_defer)
end
