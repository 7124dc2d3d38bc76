--- apply_log: record what a link brings of another instance's logs, as copies, in the order in which it comes.
--- ARGV now, refill, runs...
--- FAIL UNKNOWN_TOPIC, OTHER_FILTER, GAP, INCARNATION_OVER
--- GIVES {recorded, here before, of that: the same message of its publisher under another origin, 1 if the rest waits for another link, else 0, 1 if the next call goes on with the rest, else 0}
--- @include clock, fail, log_batch, log_rights, received_positions, copies, entry_ids, fan_out, dispatch, route, deferred_entries, lost_entries, incarnations, ended_origin, double_publications(), deferred_apply(), message_times(), timetable
-- runs: see replication/lib/log_batch. What is at or below `received` is passed over; with refill 1 the filter was widened, and what is not here
-- is recorded. What this instance published never comes back, unless a former incarnation did: see replication/lib/lost_entries. A publisher's
-- message that names the one before it, of another origin, waits for that, and all behind it too. Call it late or twice: the IDs decide.
local ms, own = clock_ms(now), call('HGET', K.instance(), F.origin)
local runs, routes, reach, fresh, recorded, before, same = read_log_batch(runs_from), {}, {}, {}, 0, 0, 0
for _, run in ipairs(runs) do
  local route = routes[run.topic] or call('HGET', K.routes(), run.topic)
  if not route or string.sub(route, 1, 1) == '>' then fail(E.UNKNOWN_TOPIC, {name = run.topic}) end
  if not routes[run.topic] then check_log(run.topic) end
  check_incarnations(run.path, run.origin)
  local stream = 'log ' .. run.topic
  local reached = reach[stream .. run.origin] or received_of(stream, run.origin)
  if not is_former_incarnation(run.origin) then
    if refill == '0' then check_filter(stream, run.origin, run.filter) end
    check_start(stream, run.origin, run.start, reached)
  end
  if order_of(run.upto) > order_of(reached) then reach[stream .. run.origin] = run.upto end
  routes[run.topic] = route
end

-- Which of a run's entries are not here yet.
local function find_new(run, up_to)
  if is_former_incarnation(run.origin) then return find_lost(run) end
  -- What was trimmed is not recorded once more.
  local forgotten = refill == '1' and call('HGET', K.retention(), 'forgotten ' .. run.topic .. '@' .. run.origin)
  local missing, last = {}, refill == '0' and order_of(up_to) or forgotten and order_of(forgotten) or ''
  local former, number, at, step = nil, 0, run.first, run.width + 1
  for i = 0, run.count - 1 do
    local id = ARGV[at]
    -- Texts of one length have the order of their IDs: what is behind one that is new, is new.
    local is_behind = former and #id == #former and id > former or order_of(id) > last
    if is_behind and (refill == '0' or not copy_of(run.topic, run.origin, id)) then
      number = number + 1
      missing[number] = i
    end
    former, at = is_behind and id or nil, at + step
  end
  return missing
end

-- Under consecutive IDs; returns ID there and ID here in turn.
local function record_run(run, missing)
  local known, log, first, step = {}, K.log(run.topic), run.first, run.width + 1
  local name, origin, path = run.width == 1 and ARGV[run.names], run.origin .. '~', run.path
  local function add(command, id, k)
    local at = first + missing[k] * step
    known[2 * k - 1], known[2 * k] = ARGV[at], id
    -- Most have a body alone: then no table is made of the fields and taken apart again.
    if name then return command('XADD', log, id, name, ARGV[at + 1], F.source, origin .. ARGV[at], F.path, path) end
    return command('XADD', log, id, unpack(fields_of_entry(run, missing[k])))
  end
  -- The first ID may have been tried twice.
  known[2] = record_entries(log, ms, 1, #missing, add)
  note_copies(run.topic, run.origin, known)
  if place_of_field(run, F.expiration) or place_of_field(run, F.due) then
    local timed = {}
    for k, i in ipairs(missing) do timed[k] = {id = known[2 * k], fields = {unpack(fields_of_entry(run, i))}} end
    message_times().note_times(run.topic, routes[run.topic], timed, 1, #missing, ms)
  end
  return known
end

-- False where the next call has to go on looking for what its publisher sent to two instances: then nothing of it is recorded.
local function apply_run(run, up_to)
  local topic, missing = run.topic, find_new(run, up_to)
  local is_numbered, new, parts = missing[1] and place_of_field(run, F.publisher), 0, {missing}
  if is_numbered then parts = double_publications().split_doubles(topic, run, missing) end
  if not parts then return false end
  for _, part in ipairs(parts) do
    local known = nil
    if part.here then
      known, same = {id_of_entry(run, part[1]), part.here}, same + 1
      double_publications().note_second_bookmark(topic, routes[topic], run, part.here, known[1], ms)
    elseif part[1] then
      known, new = record_run(run, part), new + #part
      if is_numbered then double_publications().remember_publishers(topic, run, part, known) end
      fresh[topic] = fresh[topic] or {oldest = string.match(known[2], '^%d+'), count = 0}
      fresh[topic].count = fresh[topic].count + #part
    end
    if known and call('EXISTS', K.deferred(topic)) == 1 then
      deferred_apply().apply_deferred(topic, routes[topic], run.origin, known, ms)
    end
  end
  recorded, before = recorded + new, before + run.count - new
  if refill == '1' or order_of(run.upto) > order_of(up_to) then
    -- Of this instance's own, others may have parts, under filters of their own.
    note_received('log ' .. topic, run.origin, run.upto, is_former_incarnation(run.origin) and '-' or run.filter)
    if run.upto == V.last_id then pass_on_end(topic, run.origin, run.path, ms) end
    if call('EXISTS', K.deferred(topic)) == 1 then drop_deferred_up_to(topic, run.origin, run.upto) end
  end
  return true
end

-- Where nothing carries that origin's log here, nothing is waited for.
local function has_to_wait(run, up_to)
  local place = place_of_field(run, F.after)
  for i = 0, place and run.count - 1 or -1 do
    local origin, id = string.match(ARGV[run.first + i * (run.width + 1) + place], '^([^~]+)~(.+)$')
    local there, is_carried = received_of('log ' .. run.topic, origin)
    if origin ~= own and not is_former_incarnation(origin) and is_carried and order_of(id) > order_of(there) and order_of(id_of_entry(run, i)) > order_of(up_to) then
      return true
    end
  end
  return false
end

-- What others own is known as theirs also where nobody is free here.
local function note_unread(route, now)
  for name in string.gmatch(route, '[^%s*]+') do
    local queue = load_queue(name)
    if queue and queue.owner and something_waits(queue) then add_due(now, 'read ' .. name, 'NX') end
  end
end

local waits, goes_on = 0, 0
for _, run in ipairs(runs) do
  local up_to = received_of('log ' .. run.topic, run.origin)
  if run.origin ~= own and has_to_wait(run, up_to) then
    waits = 1
    break
  end
  if run.origin ~= own and not apply_run(run, up_to) then
    goes_on = 1
    break
  end
end
for topic, found in pairs(fresh) do
  if keeps_records(routes[topic]) then add_due(ms, 'records ' .. topic, 'LT') end
  serve_queues(routes[topic], topic, found.oldest, ms, math.min(found.count, V.batch), dispatch_or_defer)
  note_unread(routes[topic], ms)
end
return {recorded, before, same, waits, goes_on}
