--- trimmed_entries: what is kept beside a log about entries that it has no more: where copies are, and who owns messages.
--- @include copies, source, incarnations

local function last_of_run(run)
  return string.format('%s-%.0f', run.here_ms, run.here + run.count - 1)
end

local function note_trimmed(topic, origin, id)
  local field = 'forgotten ' .. topic .. '@' .. origin
  local known = call('HGET', K.retention(), field)
  if not known or order_of(known) < order_of(id) then call('HSET', K.retention(), field, id) end
end

-- Takes runs away, and keeps in mind up to which ID of the origin: what was trimmed is not recorded again when a filter is widened.
local function forget_runs(topic, origin, members)
  if not members[1] then return end
  call_in_batches('ZREM', K.copies(topic, origin), members)
  local last = '0-0'
  for _, member in ipairs(members) do
    local run = parse_run(member)
    local id = string.format('%s-%.0f', run.ms, run.first + run.count - 1)
    if order_of(id) > order_of(last) then last = id end
  end
  note_trimmed(topic, origin, last)
end

-- Those before the log's first entry: the first ones of an origin, since it is copied in its order.
local function forget_head_runs(topic, origin, oldest)
  local gone, from, number = {}, 0, 64
  repeat
    local members = call('ZRANGE', K.copies(topic, origin), from, from + number - 1)
    local before = #gone
    for _, member in ipairs(members) do
      if order_of(last_of_run(parse_run(member))) >= oldest then break end
      gone[#gone + 1] = member
    end
    from = from + number
  until #gone - before < number or #gone > V.batch
  forget_runs(topic, origin, gone)
end

-- Those behind it of which nothing is left.
local function forget_empty_runs(topic, sources)
  local looked, gone = {}, {}
  for _, source in ipairs(sources) do
    local origin, id = string.match(source, '^([^~]*)~(.*)$')
    local member = run_at(topic, origin, id)
    if member and not looked[origin .. member] then
      looked[origin .. member] = true
      local run = parse_run(member)
      local first = run.here_ms .. '-' .. string.format('%.0f', run.here)
      if not call('XRANGE', K.log(topic), first, last_of_run(run), 'COUNT', 1)[1] then
        gone[origin] = gone[origin] or {}
        table.insert(gone[origin], member)
      end
    end
  end
  for origin, members in pairs(gone) do forget_runs(topic, origin, members) end
end

-- Of messages that came under several bookmarks, what tells of that, where everybody was told.
local function forget_same(topic, oldest, told)
  for _, entry in ipairs(call('XRANGE', K.same(topic), '-', '+', 'COUNT', 64)) do
    local here = entry[2][2]
    if order_of(here) >= oldest or told and order_of(entry[1]) > told then break end
    -- That an incarnation is over is told to those that come later, too.
    if here ~= V.first_id then
      call('HDEL', K.counting(), topic .. ' ' .. here)
      call('XDEL', K.same(topic), entry[1])
    end
  end
end

-- ids, entries: of a stretch that was looked at, with their fields; needed: index -> what stayed.
local function forget_copies(topic, ids, entries, needed, told)
  if call('EXISTS', K.origins(topic), K.same(topic)) == 0 then return end
  local first, sources = call('XRANGE', K.log(topic), '-', '+', 'COUNT', 1)[1], {}
  local oldest, origins = first and order_of(first[1]) or '\255', call('SMEMBERS', K.origins(topic))
  for _, origin in ipairs(origins) do forget_head_runs(topic, origin, oldest) end
  forget_same(topic, oldest, told)
  for i, id in ipairs(ids) do
    local source = not needed[i] and order_of(id) > oldest and source_of(entries[i])
    if source then sources[#sources + 1] = source end
  end
  forget_empty_runs(topic, sources)
  for _, origin in ipairs(origins) do
    if call('EXISTS', K.copies(topic, origin)) == 0 then
      call('SREM', K.origins(topic), origin)
      call('HDEL', K.searches(topic), origin)
    end
  end
end

-- What a former incarnation recorded here does not come back.
local function forget_former(topic, ids, entries, needed)
  local last = {}
  for i, id in ipairs(ids) do
    local is_own = not needed[i] and not source_of(entries[i])
    if is_own and is_former_incarnation(origin_at(id)) then last[origin_at(id)] = id end
  end
  for origin, id in pairs(last) do note_trimmed(topic, origin, id) end
end

-- told: see `least_same`. Who owns what is gone, also what was settled and might have come back: at most once it is given back until here.
local function forget_trimmed(topic, queues, ids, entries, needed, told)
  forget_copies(topic, ids, entries, needed, told)
  if names_of_instance().former[1] then forget_former(topic, ids, entries, needed) end
  local refs, make_ref = {}, ref_maker(topic)
  for i, id in ipairs(ids) do
    if not needed[i] then refs[#refs + 1] = make_ref(id) end
  end
  for _, queue in ipairs(queues) do
    if call('EXISTS', K.owners(queue.name)) == 1 then call_in_batches('HDEL', K.owners(queue.name), refs) end
    if call('EXISTS', K.asked(queue.name)) == 1 then call_in_batches('ZREM', K.asked(queue.name), refs) end
  end
end
