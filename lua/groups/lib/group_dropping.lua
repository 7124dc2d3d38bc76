--- group_dropping: messages of one group that nobody holds, found where they wait, and settled as expired, in bounded steps.
--- @include group_placing, group_names, listing, unread_entry, message_place, unleased_settlement()

-- Messages that have a place in the group, or had one and left the queue otherwise, stand in it no more. listed: ref -> true of those that are
-- listed there.
local function leave_group(drop, refs, listed)
  local queue, members = drop.queue, {}
  if drop.only_count or not (refs[1] or next(listed)) then return end
  for i, ref in ipairs(refs) do members[2 * i - 1], members[2 * i] = drop.group .. '\0000' .. ref, drop.group .. '\0001' .. ref end
  local states, number = load_groups(queue, {drop.group}), 0
  local state = states[drop.group]
  for _ in pairs(listed) do number = number + 1 end
  remember_going(queue, state)
  take_off_list(queue, state, listed, number)
  local before = call('ZCARD', K.grouped(queue.name))
  call_in_batches('ZREM', K.grouped(queue.name), members)
  state.waiting = state.waiting - (before - call('ZCARD', K.grouped(queue.name)))
  save_groups(queue, states)
end

-- found: ref -> where it stands. Settling costs more than finding, so that a call has half of what others do.
local function settle_dropped(drop, refs, found)
  drop.number = drop.number + #refs
  if not drop.only_count then unleased_settlement().settle_unleased(drop.queue, V.expired, V.forced_expire, refs, found, '', drop.reason) end
end

-- after: how many of the group were looked at and stay, which is only where they are counted.
local function drop_placed(drop, after, now)
  local queue, seen = drop.queue, tonumber(after) or 0
  if not place_ready(queue, now) then return tostring(seen) end
  local state, found = load_groups(queue, {drop.group})[drop.group], {}
  local items, gone, listed, chosen, number = items_in_group(queue, state, seen, drop.most), {}, {}, {}, 0
  if not items[1] then return '' end
  note_placed(queue, items)
  for _, item in ipairs(items) do
    local ref = item.ref
    if order_of(select(2, parse_ref(ref))) <= drop.last then
      if item.is_listed then listed[ref] = true else gone[#gone + 1] = ref end
      if item.is_placed then chosen[#chosen + 1], found[ref] = ref, item.is_listed and 'waiting' or 'sorted' end
      number = number + 1
    end
  end
  leave_group(drop, gone, listed)
  settle_dropped(drop, chosen, found)
  if #items < drop.most then return '' end
  return tostring(drop.only_count and seen + #items or seen + #items - number)
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
    if entry and group_name(drop.plan, ref, entry[2], now) == drop.group then refs[#refs + 1], found[ref] = ref, where end
  end
  settle_dropped(drop, refs, found)
  return scanned[1] == '0' and '' or scanned[1]
end

-- after: the last ID looked at. What was read meanwhile and waits is met here, too; where it is only counted, it was counted before, and so was
-- what is listed.
local function drop_unread(drop, topic, after, now)
  local queue, make_ref, refs, found, placed, step, is_cut = drop.queue, ref_maker(topic), {}, {}, {}, 16, false
  local listing = drop.only_count and read_listing(queue)
  local counted = listing and listing.topic == topic and listing.last or ''
  local following, is_over = after == '' and '0-0' or after, false
  repeat
    local entries = call('XRANGE', K.log(topic), '(' .. following, '+', 'COUNT', step)
    is_over = #entries < step
    for _, entry in ipairs(entries) do
      if order_of(entry[1]) > drop.last then
        is_over = true
        break
      end
      following = entry[1]
      local ref = make_ref(following)
      local where = where_is(queue, ref)
      local was_read = where == 'sorted' or where == 'ready'
      local is_here = was_read and not drop.only_count
        or where == 'waiting' and ref > counted and will_enter(queue, drop.plan, ref, entry[2], now)
      if is_here and group_name(drop.plan, ref, entry[2], now) == drop.group then refs[#refs + 1], found[ref] = ref, where end
      drop.plan.spent.work = drop.plan.spent.work + 0.5
      is_cut = drop.plan.spent.work >= V.sort_work / 2 or #refs >= drop.most
      if is_cut then break end
    end
    step = 64
  until is_over or is_cut
  for _, ref in ipairs(refs) do
    if found[ref] == 'sorted' then placed[#placed + 1] = ref end
  end
  leave_group(drop, placed, {})
  settle_dropped(drop, refs, found)
  return is_cut and following or ''
end
