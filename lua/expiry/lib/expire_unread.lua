--- expire_unread: what a pass over the lives of a queue's messages reads of the unread end of a log.
--- @include expire_step

local function is_unread_barrier(pass, ref, fields)
  if not pass.plan.trees.barrier then return false end
  local document = document_of(pass.plan, ref, fields, 0, pass.now)
  charge_work(pass.plan, document, 1)
  return judge(pass.plan, 'barrier', document)
end

-- An unread message that the queue reads now: it enters, later, its life is over, or another instance owns it.
local function pass_unread_entry(pass, ref, fields, fate, at, ends_later)
  local queue, plan = pass.queue, pass.plan
  if fate == 'elsewhere' then return end
  if plan.trees.entry and ref > queue.entered then
    local document = document_of(plan, ref, fields, 0, pass.now)
    local enters = judge(plan, 'entry', document)
    charge_work(plan, document, 1)
    if not enters then
      pass.refused = pass.refused + 1
      return
    end
  end
  -- A barrier is every instance's: it is judged when it has its place.
  if fate == V.remote and not is_unread_barrier(pass, ref, fields) then
    pass.remote[#pass.remote + 1], pass.remote[#pass.remote + 2] = 0, ref
  elseif fate == V.scheduled then
    local number = #pass.scheduled
    pass.scheduled[number + 1], pass.scheduled[number + 2], pass.scheduled[number + 3] = ref, at, ends_later or false
  elseif fate == V.expired then
    pass.over[#pass.over + 1] = ref
  else
    pass.entered[#pass.entered + 1], pass.entered[#pass.entered + 2] = 0, ref
    -- It is within the pass and yet not over: it was due later than it came, or has a life of its own.
    if at then pass.later[#pass.later + 1], pass.later[#pass.later + 2] = at, ref end
  end
end

-- The unread end of a log up to the pass's end, or, without one, as long as each message is over; what is in `ahead` is
-- passed over. True when it came to the end.
local function pass_unread_topic(pass, topic)
  local queue, make_ref, step = pass.queue, ref_maker(topic), 4
  if queue.topic == V.nowhere then return true end
  local id, count = string.match(call('HGET', K.cursors(queue.name), topic) or '0-0 0', '^(%S+) (%d+)$')
  local before, done, ahead = id, false, call('EXISTS', K.ahead(queue.name)) == 1
  while not done and not is_pass_spent(pass) do
    local entries = call('XRANGE', K.log(topic), '(' .. id, '+', 'COUNT', step)
    done = #entries < step
    for _, entry in ipairs(entries) do
      local ref = make_ref(entry[1])
      if not ahead or call('HDEL', K.ahead(queue.name), ref) == 0 then
        local fate, at, ends_later = fate_of(queue, ref, entry[2], false, pass.now)
        local within = tonumber(string.match(entry[1], '^%d+')) <= pass.till
        if not within and fate ~= V.expired and fate ~= 'elsewhere' and fate ~= V.remote then
          done = true
          break
        end
        pass_unread_entry(pass, ref, entry[2], fate, at, ends_later)
        pass.read[entry[1]] = true
      end
      id, count = entry[1], count + 1
      pass.looked, pass.bytes = pass.looked + 1, pass.bytes + size_of_entry(entry[2])
      if is_pass_spent(pass) then break end
    end
    step = math.min(step * 4, 128)
  end
  if id ~= before then call('HSET', K.cursors(queue.name), topic, id .. ' ' .. string.format('%d', count)) end
  return done and not is_pass_spent(pass)
end
