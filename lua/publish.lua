--- publish: record messages of one topic and push what somebody is free for.
--- ARGV now, name, publisher, sequence, shape, values...
--- FAIL UNKNOWN_TOPIC
--- GIVES {topic, duplicates, first ID, number, topic and ID of each duplicate or ''...}
--- @include clock, fail, ids, duplicates, push, dispatch
-- shape: `b` when each value is a body, `bh` when bodies and headers alternate. A named publisher numbers its messages:
-- the first value has `sequence`, the next one more; what is recorded already is answered, not recorded again.
local ms = clock_ms(now)
local route = call('HGET', K.routes(), name)
local topic = name
if route and string.sub(route, 1, 1) == '>' then
  topic = string.sub(route, 2)
  route = call('HGET', K.routes(), topic)
end
if not route then fail(E.UNKNOWN_TOPIC, {name = name}) end
local count = (#ARGV - values_from + 1) / #shape
local known = publisher ~= '' and known_sequences(publisher, tonumber(sequence), count) or {}
local log = K.log(topic)

local function add_plain(run, id, i)
  return run('XADD', log, id, F.body, ARGV[values_from + i])
end

local function add(run, id, i)
  local at = values_from + i * #shape
  local entry = {F.body, ARGV[at]}
  if #shape == 2 and ARGV[at + 1] ~= '' then entry[3], entry[4] = F.headers, ARGV[at + 1] end
  if publisher ~= '' then
    local n = #entry
    entry[n + 1], entry[n + 2], entry[n + 3] = F.publisher, publisher, F.sequence
    entry[n + 4] = string.format('%.0f', sequence + i)
  end
  return run('XADD', log, id, unpack(entry))
end

local first = ''
if #known < count then
  local last
  first, last = record(log, ms, #known, count - 1, shape == 'b' and publisher == '' and add_plain or add)
  if publisher ~= '' then
    call('HSET', K.publishers(), publisher, string.format('%.0f', sequence + count - 1) .. ' ' .. last .. ' ' .. topic)
  end
  push(route, topic, string.match(first, '^%d+'), ms, count - #known, dispatch_or_defer)
end
return {topic, #known, first, count - #known, unpack(known)}
