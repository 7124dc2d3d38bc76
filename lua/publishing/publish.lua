--- publish: record messages of one topic and push what somebody is free for.
--- ARGV now, name, publisher, sequence, shape, values...
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, SEQUENCE_GAP, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES {topic, duplicates, first ID, number, bookmark of each duplicate or ''...}
--- READS F.catalog, 'open ' .. ARGV[2]
--- @include clock, fail, publish_target, log_rights, recording, single_publish, publisher_sequences()
-- shape: a letter for each value of a message: `b` its body, or `m` one that is merged into the record of its key, `h` its
-- headers, `e` how long it lives, ms, `d` when it is due: ms, or `+` and ms from now on, `k` its routing key; all but the body
-- may be ''. A named publisher numbers its messages: the first one has `sequence`, the next one more; what is recorded already
-- is answered, not recorded again. One that logged on says its session before the sequence, and leaves none out
-- (publishers/lib/publisher_sequences). Duplicates come first, but where instances replicate: there, of a session, only their number is given.
local ms = clock_ms(now)
local is_single = shape == 'b' and publisher == '' and #ARGV == values_from
if is_single and stored[4] then
  local id = push_by_hint(name, stored[3], stored[4], ARGV[values_from], ms)
  if id then return {name, 0, id, 1} end
end
local topic, route = target_of(name)
if is_single and string.find(route, '^[^ *]+$') then
  return {topic, 0, publish_single(topic, route, stored[3], stored[4], ARGV[values_from], ms), 1}
end
local count = (#ARGV - values_from + 1) / #shape
local from, known, parts = 0, {}, nil
local numbers = publisher ~= '' and publisher_sequences()
if numbers then from, known, parts = numbers.admit_sequences(publisher, sequence, count) end

-- What is known of a publisher is written before its message.
if numbers then check_log(topic) end
local first = ''
if parts then
  -- All is checked before anything is written.
  for i, part in ipairs(parts) do
    parts[i] = open_recording(topic, route, shape, ARGV, values_from, part.from, part.to, publisher, from, ms)
  end
  for _, recording in ipairs(parts) do
    recording.after = numbers.take_predecessor(publisher, topic, from + recording.from)
    local at, last = record_messages(recording)
    first = first == '' and at or first
    numbers.remember_sequence(publisher, from + recording.to, last, topic, from + recording.from)
    push_recorded(recording, at)
  end
elseif #known < count then
  local recording, last = open_recording(topic, route, shape, ARGV, values_from, #known, count - 1, publisher, from, ms), nil
  if numbers then recording.after = numbers.take_predecessor(publisher, topic) end
  first, last = record_messages(recording)
  if numbers then numbers.remember_sequence(publisher, from + count - 1, last, topic) end
  push_recorded(recording, first)
end
return {topic, #known, first, count - #known, unpack(known)}
