--- expiry_pass: what nobody holds and has been there for too long, by the time noted or by the order of arrival; a step each.
--- @include expire_by_arrival, timetable

-- What has its end noted; the note may be of a former definition.
local function pass_noted_lives(pass)
  local queue = pass.queue
  for _, ref in ipairs(call('ZRANGE', K.lives(queue.name), '-inf', pass.now, 'BYSCORE', 'LIMIT', 0, V.batch)) do
    if is_pass_spent(pass) then return false end
    local topic, id = parse_ref(ref)
    local where, fields = where_is(queue, ref), read_pass_entry(pass, topic, id)
    call('ZREM', K.lives(queue.name), ref)
    if where and where ~= 'leased' and where ~= 'settled' and fields then
      local over, ends = is_life_over(pass, ref, fields)
      if over then
        pass.refs[#pass.refs + 1], pass.where[ref] = ref, where
      elseif ends then
        call('ZADD', K.lives(queue.name), ends, ref)
      end
    end
  end
  return not is_pass_spent(pass)
end

-- What comes after this pass cannot be over before one life has passed.
local function schedule_expiry(pass, done)
  local queue, at = pass.queue, nil
  if not done then
    at = pass.now
  else
    local noted = call('ZRANGE', K.lives(queue.name), 0, 0, 'WITHSCORES')[2]
    at = noted and tonumber(noted)
    if queue.life > 0 then
      local oldest = oldest_arrival(pass, math.max(pass.aged, pass.till))
      at = math.min(at or math.huge, (oldest or pass.now) + queue.life, pass.now + queue.life)
    end
    if at then at = math.max(at, pass.now + V.due_period) end
  end
  if at then add_due(at, 'expiry ' .. queue.name) end
end

local function pass_expiry(name, now)
  local queue = load_queue(name)
  if not queue then return end
  -- What is over in a queue that is being rebuilt, or held, is not known before that ends.
  if queue.topic == V.nowhere or queue.recovering then
    add_due(now + 1000, 'expiry ' .. name)
    return
  end
  local pass = open_expire_pass(queue, now)
  local done = pass_noted_lives(pass)
  if done and queue.life > 0 then done = pass_by_arrival(pass) end
  -- A queue that is new finds at its head what was over before it was there.
  if done and queue.life == 0 then done = pass_unread_topics(pass) end
  close_expire_pass(pass)
  schedule_expiry(pass, done)
  if #pass.refs + #pass.over + #pass.entered > 0 then add_due(now, 'dispatch ' .. name, 'NX') end
end

-- A message whose own life is over, in one of its topic's queues.
local function expire_own_life(pass, ref, fields)
  pass.looked = pass.looked + 3
  local where = where_is(pass.queue, ref)
  if not where or where == 'leased' or where == 'settled' or not is_life_over(pass, ref, fields) then return end
  -- It ends where it may be delivered.
  if where == V.remote or where == 'waiting' and is_remote(pass.queue, ref, fields) then return end
  if where == 'waiting' and pass.plan.trees.entry and ref > pass.queue.entered then
    local document = document_of(pass.plan, ref, fields, 0, pass.now)
    local enters = judge(pass.plan, 'entry', document)
    charge_work(pass.plan, document, 1)
    if not enters then return end
  end
  pass.refs[#pass.refs + 1], pass.where[ref] = ref, where
end

-- The messages of one topic that have an expiration of their own, by when it ends.
local function pass_expirations(topic, now)
  local passes, bytes, key = {}, 0, K.expirations(topic)
  for name in string.gmatch(call('HGET', K.routes(), topic) or '', '[^%s*]+') do
    local queue = string.sub(name, 1, 1) ~= '>' and load_queue(name)
    if queue then passes[#passes + 1] = open_expire_pass(queue, now) end
    if queue and (queue.topic == V.nowhere or queue.recovering) then
      add_due(now + 1000, 'expirations ' .. topic)
      return
    end
  end
  -- Mostly they stand in a row at the head of what is unread.
  for _, pass in ipairs(passes) do pass_unread_topic(pass, topic) end
  local function is_read(id)
    for _, pass in ipairs(passes) do
      if not pass.read[id] then return false end
    end
    return true
  end
  local function is_enough()
    local looked = 0
    for _, pass in ipairs(passes) do looked = looked + pass.looked end
    return looked >= 2 * V.batch or bytes >= V.bytes or passes[1] and passes[1].plan.spent.work >= V.sort_work
  end
  local ids, gone = call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, V.batch), {}
  for _, id in ipairs(ids) do
    local entry = not is_read(id) and call('XRANGE', K.log(topic), id, id)[1]
    for _, pass in ipairs(entry and passes or {}) do
      if not pass.read[id] then expire_own_life(pass, ref_of(topic, id), entry[2]) end
    end
    gone[#gone + 1] = id
    bytes = bytes + (entry and size_of_entry(entry[2]) or 0)
    if entry and is_enough() then break end
  end
  call_in_batches('ZREM', key, gone)
  for _, pass in ipairs(passes) do
    local ended = pass.refs[1] or next(pass.read)
    close_expire_pass(pass)
    if ended then add_due(now, 'dispatch ' .. pass.queue.name, 'NX') end
  end
  local following = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if following then add_due(following, 'expirations ' .. topic) end
end
