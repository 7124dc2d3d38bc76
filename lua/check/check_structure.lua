--- check_structure: a part of one of a queue's structures: entries that look wrong by themselves, and who holds leases.
--- ARGV now, queue_name, source, cursor, count, repair
--- FAIL UNKNOWN_QUEUE
--- GIVES {cursor of the next part or '0', number of leases of nobody, refs to be verified, refs noted ahead without an entry, holders, bytes}
--- FLAGS allow-oom
--- @include clock, fail, message_places, queue_history, message_life, timetable, lease_runs
-- count: about how many; bodies come along, so ask for the fewer the larger they are.
-- source: `ready`, `sorted`, `held`, `remote`, `leases`, `runs`, `ahead`; `attempts`, `lives` or `owners`, of which all refs are given. holders: in turn, one name a lease. Leases of nobody: their subscription does not
-- exist and no pass is due that would find them; with repair 1 it is.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local keys = {
  ready = K.ready(queue_name), sorted = K.sorted(queue_name, V.none), held = K.held(queue_name),
  leases = K.leases(queue_name), ahead = K.ahead(queue_name), attempts = K.attempts(queue_name),
  lives = K.lives(queue_name), remote = K.remote(queue_name), owners = K.owners(queue_name),
}
local is_hash = source == 'leases' or source == 'ahead' or source == 'attempts' or source == 'owners'
local is_whole = source == 'attempts' or source == 'lives' or source == 'owners'

-- Of `runs` a part is one run, and the cursor the one behind which it goes on.
local function next_run()
  local run = runs_behind(queue_name, cursor == '0' and '' or cursor, 1)[1]
  return {run and run.member or '0', run and leases_in_run(queue_name, run) or {}}
end

local scanned = source == 'runs' and next_run() or call(is_hash and 'HSCAN' or 'ZSCAN', keys[source], cursor, 'COUNT', count)
local are_leases = source == 'leases' or source == 'runs'
local refs, gone, holders, unheld, known, present, bytes = {}, 0, {}, 0, {}, {}, 0
local pass = tonumber(call('ZSCORE', K.due(), 'leases ' .. queue_name) or ms + 1)

local function is_there(holder)
  if present[holder] == nil then present[holder] = call('EXISTS', K.subscription(holder)) == 1 end
  return present[holder]
end

-- On the side of what is owned elsewhere, or of what is not.
local function is_astray(ref, fields)
  return queue.owner and not are_leases and is_remote(queue, ref, fields) ~= (source == 'remote')
end

for i = 1, #scanned[2], 2 do
  local ref = ref_of_member(scanned[2][i])
  local topic, id = parse_ref(ref)
  if topic then
    local upto = read_up_to(queue, known, topic)
    local read = not upto or order_of(id) <= upto
    local entry = not is_whole and call('XRANGE', K.log(topic), id, id)[1]
    for k = 2, entry and #entry[2] or 0, 2 do bytes = bytes + #entry[2][k] end
    if is_whole then
      refs[#refs + 1] = ref
    elseif source == 'ahead' then
      if not entry and not read then gone = gone + 1 end
      if read or entry then refs[#refs + 1] = ref end
    else
      local is_wrong = not entry or not read or is_before_start(queue_name, topic, id)
      if is_wrong or is_astray(ref, entry[2]) then refs[#refs + 1] = ref end
      if are_leases then
        holders[#holders + 1] = string.match(scanned[2][i + 1], '^%d+ (%S+)')
        if pass > ms and not is_there(holders[#holders]) then unheld = unheld + 1 end
      end
    end
  end
end
if unheld > 0 and repair == '1' then
  call('HDEL', K.queue(queue_name), F.passing)
  add_due(ms, 'leases ' .. queue_name)
end
return {scanned[1], unheld, table.concat(refs, ' '), gone, table.concat(holders, ' '), bytes}
