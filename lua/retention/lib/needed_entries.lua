--- needed_entries: which entries of a log queues still need. `where_is` (message_place) says it of one message; this, of a stretch.
--- @include index_places, timetable_index, lease_runs

local function mark_found(needed, found, queue, state)
  for i = 1, #found do
    if found[i] and not needed[i] then needed[i] = 'queue ' .. queue.name .. ' ' .. state end
  end
end

-- A barrier that was sent may be pushed again after a doubt, from the log: as many as each subscription remembers.
local function mark_sent_barriers(queue, refs, needed)
  local sent = {}
  for _, id in ipairs(call('SMEMBERS', K.members(queue.name))) do
    for _, text in ipairs(call('LRANGE', K.barriers(id), 0, -1)) do
      local name, ref = string.match(text, '^(%S+) %d+ (.*)$')
      if name == queue.name then sent[ref] = true end
    end
  end
  if not next(sent) then return end
  for i, ref in ipairs(refs) do
    if sent[ref] and not needed[i] then needed[i] = 'queue ' .. queue.name .. ' barrier' end
  end
end

local function mark_sorted(queue, refs, needed)
  local prefixes, members = call('HMGET', K.places(queue.name), unpack(refs)), {}
  for i, ref in ipairs(refs) do members[i] = (prefixes[i] or '') .. ref end
  mark_found(needed, call('ZMSCORE', K.sorted(queue.name, V.none), unpack(members)), queue, 'ready')
  mark_found(needed, call('ZMSCORE', K.held(queue.name), unpack(refs)), queue, 'held')
  mark_sent_barriers(queue, refs, needed)
end

-- The queues that have something which they have read and not settled: mostly few of many.
local function busy_queues(queues)
  local busy = {}
  for _, queue in ipairs(queues) do
    queue.leased = number_leased(queue.name) > 0
    queue.in_runs = call('EXISTS', K.runs(queue.name)) == 1
    queue.returned = call('EXISTS', K.ready(queue.name)) == 1
    queue.remote = call('EXISTS', K.remote(queue.name)) == 1
    if queue.leased or queue.returned or queue.remote or queue.sorted or may_be_in_timetable(queue) then busy[#busy + 1] = queue end
  end
  return busy
end

-- needed: index -> `queue <queue> <state>`. The queue has read all of them: what it has not read, it needs.
local function mark_needed(queue, refs, needed)
  local name = queue.name
  if queue.leased then mark_found(needed, lease_values(queue, refs), queue, 'leased') end
  if queue.returned then mark_found(needed, call('ZMSCORE', K.ready(name), unpack(refs)), queue, 'ready') end
  if queue.remote then mark_found(needed, call('ZMSCORE', K.remote(name), unpack(refs)), queue, V.remote) end
  if queue.sorted then mark_sorted(queue, refs, needed) end
  for i, state in pairs(find_in_timetable(queue, refs)) do
    if state and not needed[i] then needed[i] = 'queue ' .. name .. ' ' .. state end
  end
end
