--- begin_incarnation: begin a new incarnation of this instance: what it has recorded so far belongs to the last one from now on.
--- ARGV now, incarnation
--- GIVES {origin, 1 while leases of the last incarnation are left: call again, else 0}
--- FLAGS allow-oom
--- @include clock, fail, recovery, ref, lease_return, dispatch, journal_start, lease_runs
-- Nothing is written anew: the last ID tells whose an entry without a source is. Leases are void, a part of them with each call;
-- queues that share their messages are held (instance/lib/recovery). Called again with the same word it begins nothing.
local ms = clock_ms(now)
local name, former, known = unpack(call('HMGET', K.instance(), F.name, F.origin, F.former))
local origin, last = name .. '.' .. incarnation, call('GET', K.clock()) or '0-0'

-- IDs of the new incarnation are above all of the last one's, in every stream.
local function end_last(shared)
  local streams, at = {}, string.format('%.0f-0', ms)
  for _, topic in ipairs(call('HKEYS', K.topics())) do streams[#streams + 1] = K.log(topic) end
  for _, queue_name in ipairs(shared) do streams[#streams + 1] = K.journal(queue_name) end
  if order_of(at) > order_of(last) then last = at end
  for pass = 1, 2 do
    for _, stream in ipairs(streams) do
      local info, ended = redis.pcall('XINFO', 'STREAM', stream), nil
      for k = 1, #info, 2 do
        if info[k] == 'last-generated-id' then ended = info[k + 1] end
      end
      if ended and order_of(ended) > order_of(last) then last = ended end
      if ended and pass == 2 then call('XSETID', stream, last) end
    end
  end
  call('SET', K.clock(), last)
end

-- What nobody was told of its holders counts for nothing; at most once it is over.
local function void_leases(queue)
  local refs, leases, freed, cursor, behind = {}, {}, {}, '0', ''

  local function add_void(values)
    for i = 1, #values, 2 do
      local lease = values[i] ~= V.anchor and parse_lease(values[i + 1])
      if lease and tonumber(lease.token) <= tonumber(queue.recovering) then
        refs[#refs + 1], leases[#leases + 1] = values[i], lease
      end
    end
  end

  repeat
    local scanned = call('HSCAN', K.leases(queue.name), cursor, 'COUNT', V.batch)
    cursor = scanned[1]
    add_void(scanned[2])
  until cursor == '0' or #refs >= V.batch
  while #refs < V.batch and behind do
    local run = runs_behind(queue.name, behind, 1)[1]
    behind = run and run.member
    if run and run.token <= tonumber(queue.recovering) then add_void(leases_in_run(queue.name, run)) end
  end
  return_leased(queue, queue.once and V.disconnected or V.given_back, refs, leases, freed, ms, 0)
  free_room(freed, ms, queue.name)
  return #refs >= V.batch and 1 or 0
end

if former ~= origin and not is_known_incarnation(origin) then
  local shared = hold_shared_queues(ms, true)
  end_last(shared)
  call('HSET', K.instance(), F.origin, origin, F.former, (known and known .. ' ' or '') .. last .. ' ' .. former)
  for _, queue_name in ipairs(call('HKEYS', K.queues())) do begin_journal(queue_name) end
end
local more = 0
for _, queue_name in ipairs(call('HKEYS', K.queues())) do
  local queue = more == 0 and load_queue(queue_name)
  if queue and queue.recovering then more = void_leases(queue) end
end
return {call('HGET', K.instance(), F.origin), more}
