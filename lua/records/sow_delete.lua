--- sow_delete: delete records of a topic, and tell it in the topic's log; no queue is touched.
--- ARGV now, topic, publisher, sequence, filter, after, how, values...
--- FAIL NO_RECORDS, RECORDS_BEHIND, MISSING_KEY, UNREAD_BODY, TOO_MUCH_TO_READ, NAME_IN_USE, SEQUENCE_GAP
--- GIVES {`after` of the next call or '', number, 1 if it was done before else 0}
--- FLAGS allow-oom
--- @include clock, fail, required_records, key_reading, record_ends, record_walk, publisher_sequences()
-- how: `keys`, whose records go, or `data`, messages that have the keys, 500 at most; `filter`, whose tree all that match go, in
-- steps; `keys` with a filter are those of them that match, in steps, too. A named publisher numbers this like a message
-- (publishers/lib/publisher_sequences), and what it did before is not done again.
local ms = clock_ms(now)
local records = open_records_or_fail(topic)
local number, known = nil, {}
local numbers = publisher ~= '' and publisher_sequences()
if numbers then number, known = numbers.admit_sequences(publisher, sequence, 1) end
if known[1] then return {'', 0, 1} end
if not is_log_read(records) then fail(E.RECORDS_BEHIND, {topic = topic}) end
if how == 'data' then
  for i = values_from, #ARGV do ARGV[i] = read_message_key(records, ARGV[i], i - values_from) end
end

local keys, found, following = {}, {}, ''
local function add(key)
  if not found[key] then keys[#keys + 1], found[key] = key, true end
end
if how == 'filter' then
  following = walk_records(open_record_walk(records, filter, ms), after, add)
elseif how == 'keys' and filter ~= '' then
  following = walk_keys(open_record_walk(records, filter, ms), after, values_from, add)
else
  for i = values_from, #ARGV do
    local ends = call('ZSCORE', K.ends(topic), ARGV[i])
    if call('HEXISTS', K.records(topic), ARGV[i]) == 1 and (not ends or tonumber(ends) > ms) then add(ARGV[i]) end
  end
end
local by = publisher ~= '' and {F.publisher, publisher, F.sequence, string.format('%.0f', number)} or {}
local last = end_records(records, keys, V.deleted, by, ms)
if numbers and following == '' then
  -- Where there were no records, nothing is in the log: the former message stays the one that is known.
  local id, where = string.match(call('HGET', K.publishers(), publisher) or '', '^%d+ (%S+) (.*)$')
  numbers.remember_sequence(publisher, number, last or id or string.format('%.0f-0', ms), last and topic or where or '')
end
return {following, #keys, 0}
