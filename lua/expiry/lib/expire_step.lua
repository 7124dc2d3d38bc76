--- expire_step: one bounded step of looking for messages of a queue that nobody holds and whose life is over.
--- @include unleased_settlement, judging_plan, deliverable

-- The least ref of a later ms.
local function first_ref_after_ms(ms)
  local text = string.format('%.0f', ms + 1)
  return string.char(96 + #text) .. text
end

local function size_of_entry(fields)
  local bytes = 0
  for i = 2, #fields, 2 do bytes = bytes + #fields[i] end
  return bytes
end

local function is_pass_spent(pass)
  return pass.looked >= V.batch or pass.bytes >= V.bytes or pass.plan.spent.work >= V.sort_work
end

-- Finding where one message is costs as much as reading three in a row, and taking it out of indexes as two more.
local function read_pass_entry(pass, topic, id)
  pass.looked = pass.looked + (pass.queue.sorted and 5 or 3)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if entry then pass.bytes = pass.bytes + size_of_entry(entry[2]) end
  return entry and entry[2]
end

-- The queue's part of a message that stands somewhere: whether its life is over there; the second value is when, or nil.
local function is_life_over(pass, ref, fields)
  local own, due, addressed = delivery_options_of(fields)
  if addressed and addressed ~= pass.queue.name then return false, nil end
  local ends = end_of_life(pass.queue, ref, own, due)
  return ends ~= nil and ends <= pass.now, ends
end

-- One set in the order of arrival, behind `after` (a ref, or '') and up to the pass's end. Returns the last ref seen, nil at
-- the end of it.
local function expire_set(pass, key, where, after)
  local from = after ~= '' and '(' .. after or pass.aged > 0 and '[' .. first_ref_after_ms(pass.aged) or '-'
  local refs = call('ZRANGE', key, from, '(' .. first_ref_after_ms(pass.till), 'BYLEX', 'LIMIT', 0, V.batch)
  for _, ref in ipairs(refs) do
    local topic, id = parse_ref(ref)
    local fields, over, ends = read_pass_entry(pass, topic, id), false, nil
    if fields then over, ends = is_life_over(pass, ref, fields) end
    if over then
      pass.refs[#pass.refs + 1], pass.where[ref] = ref, where
    elseif ends then
      -- No pass by the order of arrival comes here again: it ends later, since it was scheduled or has a life of its own.
      pass.later[#pass.later + 1], pass.later[#pass.later + 2] = ends, ref
    end
    if is_pass_spent(pass) then return ref end
  end
  return #refs == V.batch and refs[#refs] or nil
end

local function open_expire_pass(queue, now)
  return {
    queue = queue, plan = load_plan(queue), now = now, looked = 0, bytes = 0, refused = 0, refs = {}, where = {}, over = {},
    scheduled = {}, entered = {}, later = {}, remote = {}, read = {}, aged = 0, till = 0,
  }
end

local function close_expire_pass(pass)
  local queue = pass.queue
  settle_unleased(queue, V.expired, V.time_limit, pass.refs, pass.where, '')
  expire_read(queue, pass.over)
  call_in_batches('ZADD', K.ready(queue.name), pass.entered)
  call_in_batches('ZADD', K.remote(queue.name), pass.remote)
  schedule_messages(queue, pass.scheduled)
  call_in_batches('ZADD', K.lives(queue.name), pass.later)
  if pass.refused > 0 then call('HINCRBY', K.queue(queue.name), F.filtered, pass.refused) end
end
