--- publish: record messages of one topic and push what somebody is free for.
--- ARGV now, name, publisher, sequence, shape, values...
--- FAIL UNKNOWN_TOPIC, NAME_IN_USE, SEQUENCE_GAP, MISSING_KEY, RECORDS_BEHIND, DELTA_NOT_JSON
--- GIVES {topic, duplicates, first ID, number, topic and ID of each duplicate or ''...}
--- @include clock, fail, ids, push, dispatch, times(), sequences(), route, keeping()
-- shape: a letter for each value of a message: `b` its body, or `m` one that is merged into the record of its key, `h` its
-- headers, `e` how long it lives, ms, `d` when it is due: ms, or `+` and ms from now on; all but the body may be ''. A named
-- publisher numbers its messages: the first one has `sequence`, the next one more; what is recorded already is answered,
-- not recorded again. One that logged on says its session before the sequence, and leaves none out (lib/sequences).
local ms = clock_ms(now)
local route = call('HGET', K.routes(), name)
local topic = name
if route and string.sub(route, 1, 1) == '>' then
  topic = string.sub(route, 2)
  route = call('HGET', K.routes(), topic)
end
if not route then fail(E.UNKNOWN_TOPIC, {name = name}) end
local count = (#ARGV - values_from + 1) / #shape
local from, known = 0, {}
if publisher ~= '' then from, known = sequences().admit(publisher, sequence, count) end
local keeper = #known < count and keeps_records(route) and keeping()
local kept = keeper and keeper.open_keeping(topic, shape, values_from, #known, count - 1, ms)
local log = K.log(topic)
local names = {h = F.headers, e = F.expiration, d = F.due}
local special = {}

local function add_plain(run, id, i)
  return run('XADD', log, id, F.body, ARGV[values_from + i])
end

local function add(run, id, i)
  local at = values_from + i * #shape
  local entry = {F.body, kept and kept.bodies[i] or ARGV[at]}
  for k = 2, #shape do
    local letter, value = string.sub(shape, k, k), ARGV[at + k - 1]
    if letter == 'd' and string.sub(value, 1, 1) == '+' then value = string.format('%.0f', ms + string.sub(value, 2)) end
    if value ~= '' then entry[#entry + 1], entry[#entry + 2] = names[letter], value end
    if value ~= '' and letter ~= 'h' then special[i] = {id = id, fields = entry} end
  end
  if kept and keeper.stamp_life(kept, entry) then special[i] = {id = id, fields = entry} end
  if publisher ~= '' then
    local n = #entry
    entry[n + 1], entry[n + 2], entry[n + 3] = F.publisher, publisher, F.sequence
    entry[n + 4] = string.format('%.0f', from + i)
  end
  if kept then keeper.keep_message(kept, i, id, entry) end
  return run('XADD', log, id, unpack(entry))
end

local first = ''
if #known < count then
  local last
  first, last = record(log, ms, #known, count - 1, shape == 'b' and publisher == '' and not kept and add_plain or add)
  if publisher ~= '' then sequences().remember(publisher, from + count - 1, last, topic) end
  if kept then keeper.close_keeping(kept, last, ms) end
  if next(special) then times().note_times(topic, route, special, #known, count - 1, ms) end
  push(route, topic, string.match(first, '^%d+'), ms, count - #known, dispatch_or_defer)
end
return {topic, #known, first, count - #known, unpack(known)}
