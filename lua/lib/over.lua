--- over: one bounded step of looking for messages of a queue that nobody holds and whose life is over.
--- @include unleased, plan, enter

-- The least ref of a later ms.
local function after_ms(ms)
  local text = string.format('%.0f', ms + 1)
  return string.char(96 + #text) .. text
end

local function size_of_entry(fields)
  local bytes = 0
  for i = 2, #fields, 2 do bytes = bytes + #fields[i] end
  return bytes
end

local function is_spent(pass)
  return pass.looked >= V.batch or pass.bytes >= V.bytes or pass.plan.spent.work >= V.sort_work
end

-- Finding where one message is costs as much as reading three in a row, and taking it out of indexes as two more.
local function look_at_entry(pass, topic, id)
  pass.looked = pass.looked + (pass.queue.sorted and 5 or 3)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if entry then pass.bytes = pass.bytes + size_of_entry(entry[2]) end
  return entry and entry[2]
end

-- The queue's part of a message that stands somewhere: whether its life is over there; the second value is when, or nil.
local function is_over_there(pass, ref, fields)
  local own, due, addressed = wishes_of(fields)
  if addressed and addressed ~= pass.queue.name then return false, nil end
  local ends = end_of_life(pass.queue, ref, own, due)
  return ends ~= nil and ends <= pass.now, ends
end

-- One set in the order of arrival, behind `after` (a ref, or '') and up to the pass's end. Returns the last ref seen, nil at
-- the end of it.
local function look_through(pass, key, where, after)
  local from = after ~= '' and '(' .. after or pass.aged > 0 and '[' .. after_ms(pass.aged) or '-'
  local refs = call('ZRANGE', key, from, '(' .. after_ms(pass.till), 'BYLEX', 'LIMIT', 0, V.batch)
  for _, ref in ipairs(refs) do
    local topic, id = parse_ref(ref)
    local fields = look_at_entry(pass, topic, id)
    if fields and is_over_there(pass, ref, fields) then
      pass.refs[#pass.refs + 1], pass.where[ref] = ref, where
    end
    if is_spent(pass) then return ref end
  end
  return #refs == V.batch and refs[#refs] or nil
end

-- An unread message that the queue reads now: it enters, later, or its life is over.
local function read_entry(pass, ref, fields, fate, at, ends_later)
  local queue, plan = pass.queue, pass.plan
  if fate == 'elsewhere' then return end
  if plan.trees.entry then
    local document = document_of(plan, ref, fields, 0, pass.now)
    local enters = judge(plan, 'entry', document)
    bill(plan, document, 1)
    if not enters then
      pass.refused = pass.refused + 1
      return
    end
  end
  if fate == V.scheduled then
    local number = #pass.scheduled
    pass.scheduled[number + 1], pass.scheduled[number + 2], pass.scheduled[number + 3] = ref, at, ends_later or false
  elseif fate == V.expired then
    pass.over[#pass.over + 1] = ref
  else
    pass.entered[#pass.entered + 1], pass.entered[#pass.entered + 2] = 0, ref
  end
end

-- The unread end of a log up to the pass's end, or, without one, as long as each message is over; what is in `ahead` is
-- passed over. True when it came to the end.
local function read_over(pass, topic)
  local queue, make_ref, step = pass.queue, ref_maker(topic), 4
  if queue.topic == V.nowhere then return true end
  local id, count = string.match(call('HGET', K.cursors(queue.name), topic) or '0-0 0', '^(%S+) (%d+)$')
  local before, done, ahead = id, false, call('EXISTS', K.ahead(queue.name)) == 1
  while not done and not is_spent(pass) do
    local entries = call('XRANGE', K.log(topic), '(' .. id, '+', 'COUNT', step)
    done = #entries < step
    for _, entry in ipairs(entries) do
      local ref = make_ref(entry[1])
      if not ahead or call('HDEL', K.ahead(queue.name), ref) == 0 then
        local fate, at, ends_later = fate_of(queue, ref, entry[2], false, pass.now)
        local within = tonumber(string.match(entry[1], '^%d+')) <= pass.till
        if not within and fate ~= V.expired and fate ~= 'elsewhere' then
          done = true
          break
        end
        read_entry(pass, ref, entry[2], fate, at, ends_later)
        pass.read[entry[1]] = true
      end
      id, count = entry[1], count + 1
      pass.looked, pass.bytes = pass.looked + 1, pass.bytes + size_of_entry(entry[2])
      if is_spent(pass) then break end
    end
    step = math.min(step * 4, 128)
  end
  if id ~= before then call('HSET', K.cursors(queue.name), topic, id .. ' ' .. string.format('%d', count)) end
  return done and not is_spent(pass)
end

local function open_pass(queue, now)
  return {
    queue = queue, plan = load_plan(queue), now = now, looked = 0, bytes = 0, refused = 0, refs = {}, where = {}, over = {},
    scheduled = {}, entered = {}, read = {}, aged = 0, till = 0,
  }
end

local function close_pass(pass)
  local queue = pass.queue
  settle_unleased(queue, V.expired, V.time_limit, pass.refs, pass.where, '')
  settle_over(queue, pass.over)
  call_in_batches('ZADD', K.ready(queue.name), pass.entered)
  schedule(queue, pass.scheduled)
  if pass.refused > 0 then call('HINCRBY', K.queue(queue.name), F.filtered, pass.refused) end
end
