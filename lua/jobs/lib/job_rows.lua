--- job_rows: what a partition of a job writes: messages of one topic, or of several, under the partition's name as publisher.
--- @include fail, publish_target, log_rights, recording

-- Values by topic, each topic once, in the order in which they come; a row's last value names its topic, or a queue.
local function rows_by_topic(shape, values, first)
  local topics, rows, named, width = {}, {}, {}, #shape
  for at = first, #values, width do
    local name = values[at + width - 1]
    local own = named[name]
    if not own then
      -- A queue's name and its topic's are one log, whose rows stay in order.
      local topic = target_of(name)
      own = rows[topic]
      if not own then
        own = {}
        rows[topic], topics[#topics + 1] = own, topic
      end
      named[name] = own
    end
    for i = at, at + width - 2 do own[#own + 1] = values[i] end
  end
  return topics, rows
end

-- Checks rows before anything is written: gives what is to be recorded, of each topic. shape: as of publish, and with `t` at
-- its end the row's topic, else they are all of topic `name`. publisher: '' only checks.
local function open_rows(name, shape, values, first, publisher, ms)
  local last = 0
  if publisher ~= '' then
    local client = string.match(call('HGET', K.sessions(), publisher) or '', '^%d+ %d+ (.*)$')
    if client then fail(E.NAME_IN_USE, {publisher = publisher, by = client}) end
    last = tonumber(string.match(call('HGET', K.publishers(), publisher) or '0', '^%d+'))
  end
  local recordings, at = {}, last + 1
  local function add(topic_name, own_shape, own_values, from)
    local topic, route = target_of(topic_name)
    local number = (#own_values - from + 1) / #own_shape
    check_log(topic)
    recordings[#recordings + 1] =
      open_recording(topic, route, own_shape, own_values, from, 0, number - 1, publisher, at, ms)
    at = at + number
  end
  if string.sub(shape, -1) ~= 't' then
    add(name, shape, values, first)
  else
    local topics, rows = rows_by_topic(shape, values, first)
    for _, topic in ipairs(topics) do add(topic, string.sub(shape, 1, -2), rows[topic], 1) end
  end
  return recordings
end

-- Records them, remembers how far the publisher is, and serves the queues.
local function record_rows(recordings)
  local first_ids = {}
  for i, recording in ipairs(recordings) do
    local first, last = record_messages(recording)
    first_ids[i] = first
    local sequence = string.format('%.0f', recording.sequence + recording.to)
    call('HSET', K.publishers(), recording.publisher, sequence .. ' ' .. last .. ' ' .. recording.topic)
  end
  for i, recording in ipairs(recordings) do push_recorded(recording, first_ids[i]) end
end
