--- group_dropping: messages of one group that nobody holds, found where they wait, and settled as expired, in bounded steps.
--- @include group_placing, group_names, unread_entry, message_place, unleased_settlement

local function open_drop(queue, group, until_id, only_count, reason)
  return {queue = queue, group = group, last = order_of(until_id), only_count = only_count, reason = reason, plan = load_plan(queue), number = 0,
    most = V.batch / 2}
end

-- Messages that have a place in the group, or had one and left the queue otherwise, stand in it no more.
local function leave_group(drop, refs)
  local queue, members = drop.queue, {}
  if drop.only_count or not refs[1] then return end
  for i, ref in ipairs(refs) do members[2 * i - 1], members[2 * i] = drop.group .. '\0000' .. ref, drop.group .. '\0001' .. ref end
  local state = load_groups(queue, {drop.group})[drop.group]
  remember_going(queue, state)
  local before = call('ZCARD', K.grouped(queue.name))
  call_in_batches('ZREM', K.grouped(queue.name), members)
  state.waiting = state.waiting - (before - call('ZCARD', K.grouped(queue.name)))
  save_groups(queue, {[drop.group] = state})
end

-- found: ref -> where it stands. Settling costs more than finding, so that a call has half of what others do.
local function settle_dropped(drop, refs, found)
  drop.number = drop.number + #refs
  if not drop.only_count then settle_unleased(drop.queue, V.expired, V.forced_expire, refs, found, '', drop.reason) end
end

-- after: how many of the group were looked at and stay, which is only where they are counted.
local function drop_placed(drop, after, now)
  local queue, seen = drop.queue, tonumber(after) or 0
  if not place_ready(queue, now) then return tostring(seen) end
  local refs, found = refs_in_group(queue, drop.group, seen, drop.most), {}
  local gone, chosen = {}, {}
  if not refs[1] then return '' end
  for i, placed in ipairs(call('ZMSCORE', K.sorted(queue.name, V.none), unpack(refs))) do
    local ref = refs[i]
    if order_of(select(2, parse_ref(ref))) <= drop.last then
      gone[#gone + 1] = ref
      if placed then chosen[#chosen + 1], found[ref] = ref, 'sorted' end
    end
  end
  leave_group(drop, gone)
  settle_dropped(drop, chosen, found)
  if #refs < drop.most then return '' end
  return tostring(drop.only_count and seen + #refs or seen + #refs - #gone)
end

local function is_of_group(drop, ref, fields, now)
  return group_name(drop.plan, ref, fields, now) == drop.group
end

-- after: cursor of what is known to have come back.
local function drop_returned(drop, after, now)
  local queue, refs, found = drop.queue, {}, {}
  local scanned = call('HSCAN', K.attempts(queue.name), after == '' and '0' or after, 'COUNT', 50)
  for i = 1, #scanned[2], 2 do
    local ref = scanned[2][i]
    local topic, id = parse_ref(ref)
    local where = topic and order_of(id) <= drop.last and where_is(queue, ref)
    local entry = where == 'delayed' and call('XRANGE', K.log(topic), id, id)[1]
    if entry and is_of_group(drop, ref, entry[2], now) then refs[#refs + 1], found[ref] = ref, where end
  end
  settle_dropped(drop, refs, found)
  return scanned[1] == '0' and '' or scanned[1]
end

local function settle_read(drop, refs, found)
  local placed = {}
  for _, ref in ipairs(refs) do
    if found[ref] == 'sorted' then placed[#placed + 1] = ref end
  end
  leave_group(drop, placed)
  settle_dropped(drop, refs, found)
end

-- after: the last ID looked at. What was read meanwhile and waits is met here, too; where it is only counted, it was counted before.
local function drop_unread(drop, topic, after, now)
  local queue, make_ref, refs, found, step = drop.queue, ref_maker(topic), {}, {}, 16
  local following = after == '' and '0-0' or after
  while true do
    local entries = call('XRANGE', K.log(topic), '(' .. following, '+', 'COUNT', step)
    for _, entry in ipairs(entries) do
      if order_of(entry[1]) > drop.last then entries = {} break end
      following = entry[1]
      local ref = make_ref(following)
      local where = where_is(queue, ref)
      local was_read = where == 'sorted' or where == 'ready'
      local is_here = was_read and not drop.only_count or where == 'waiting' and will_enter(queue, drop.plan, ref, entry[2], now)
      if is_here and is_of_group(drop, ref, entry[2], now) then refs[#refs + 1], found[ref] = ref, where end
      drop.plan.spent.work = drop.plan.spent.work + 0.5
      if drop.plan.spent.work >= V.sort_work / 2 or #refs >= drop.most then
        settle_read(drop, refs, found)
        return following
      end
    end
    if #entries < step then break end
    step = 64
  end
  settle_read(drop, refs, found)
  return ''
end
