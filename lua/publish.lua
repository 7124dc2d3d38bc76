--- publish: record messages of one topic and push what somebody is free for.
--- ARGV now, name, publisher, sequence, shape, values...
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, SEQUENCE_GAP, MISSING_KEY, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES {topic, duplicates, first ID, number, bookmark of each duplicate or ''...}
--- @include clock, fail, target, recording, sequences()
-- shape: a letter for each value of a message: `b` its body, or `m` one that is merged into the record of its key, `h` its
-- headers, `e` how long it lives, ms, `d` when it is due: ms, or `+` and ms from now on, `k` its routing key; all but the body
-- may be ''. A named publisher numbers its messages: the first one has `sequence`, the next one more; what is recorded already
-- is answered, not recorded again. One that logged on says its session before the sequence, and leaves none out
-- (lib/sequences).
local ms = clock_ms(now)
local topic, route = target_of(name)
local count = (#ARGV - values_from + 1) / #shape
local from, known = 0, {}
if publisher ~= '' then from, known = sequences().admit(publisher, sequence, count) end

local first = ''
if #known < count then
  local recording, last = open_recording(topic, route, shape, ARGV, values_from, #known, count - 1, publisher, from, ms), nil
  if publisher ~= '' then recording.after = sequences().take_before(publisher, topic) end
  first, last = record_messages(recording)
  if publisher ~= '' then sequences().remember(publisher, from + count - 1, last, topic) end
  push_recorded(recording, first)
end
return {topic, #known, first, count - #known, unpack(known)}
