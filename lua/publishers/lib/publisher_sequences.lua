--- publisher_sequences: who may publish under a name, and under which numbers. The nest of it makes nothing dearer for the nameless.
--- @include fail, duplicates, single_numbers()

local numbers = {}

-- `given` is `<sequence>`, or `<session> <sequence>` of a publisher that logged on. Then it must be the last one that did, and
-- no number may be left out: else one that was overtaken would later look like a duplicate, and be lost. Who never logs on
-- numbers as it likes, but not under a name that somebody is logged on with. Returns the first number, and of each of the
-- first ones that are recorded already where; of a session, whose client does not ask, ''; where copies came of numbers beyond
-- the session's own, those that are recorded may lie between others: then the runs of these, too (publishers/lib/single_numbers).
local function admit_sequences(publisher, given, count)
  local session, first = string.match(given, '^(%d+) (%d+)$')
  local number, client = string.match(call('HGET', K.sessions(), publisher) or '', '^(%d+) %d+ (.*)$')
  if number ~= session then fail(E.NAME_IN_USE, {publisher = publisher, by = client}) end
  if not session then return tonumber(given), known_sequences(publisher, tonumber(given), count) end
  first = tonumber(first)
  numbers.each = string.find(call('HGET', K.sequences(), publisher .. ' open') or '', ' ', 1, true) ~= nil
  if numbers.each then return single_numbers().admit_each(publisher, first, count) end
  local last = tonumber(string.match(call('HGET', K.publishers(), publisher) or '0', '^%d+'))
  if first > last + 1 then
    fail(E.SEQUENCE_GAP, {publisher = publisher, expected = string.format('%.0f', last + 1), got = string.format('%.0f', first)})
  end
  local known = {}
  for i = 1, math.min(last - first + 1, count) do known[i] = '' end
  return first, known
end

-- Writes down what a publisher has recorded: its last number, and where that is. first: of the run, that number without one.
local function remember_sequence(publisher, sequence, id, topic, first)
  if numbers.each then return single_numbers().remember_each(publisher, first or sequence, sequence, id, topic) end
  call('HSET', K.publishers(), publisher, string.format('%.0f', sequence) .. ' ' .. id .. ' ' .. topic)
end

-- The bookmark of its last message in a topic, where that came from another instance: told once. number: of the next one.
local function take_predecessor(publisher, topic, number)
  if numbers.each then single_numbers().note_predecessor_of_number(publisher, number) end
  local known, source = string.match(call('HGET', K.sequences(), publisher .. ' after') or '', '^(%S+) (%S+)$')
  if known ~= topic then return nil end
  call('HDEL', K.sequences(), publisher .. ' after')
  return source
end
