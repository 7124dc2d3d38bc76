--- group_leaving: what is given, or passed over, leaves its group, and what of it may go.
--- @include group_state, listing, batch

-- Items that are listed leave their lists, where mostly they are the first ones.
local function leave_listed(queue, states, items)
  -- What several of a group cost together is less than one by one, and of one alone more.
  local is_one_each, refs_of, numbers = queue.concurrency == 1 and not queue.batch, {}, {}
  for _, item in ipairs(items) do
    local name, ref = item.name, item.ref
    item.was_listed = is_one_each and take_first_off(queue, states[name], ref)
    if not item.was_listed then
      local refs = refs_of[name] or {}
      refs[ref], refs_of[name], numbers[name] = true, refs, (numbers[name] or 0) + 1
    end
  end
  for name, refs in pairs(refs_of) do take_off_list(queue, states[name], refs, numbers[name]) end
  for _, item in ipairs(next(refs_of) and items or {}) do
    local refs = refs_of[item.name]
    if refs and refs[item.ref] == false then item.was_listed = true end
  end
  note_taken(queue, items)
end

-- Items leave the lists of their groups. Few of them have failed, so what stands there as failed is looked for only where one is missing.
local function leave_lists(queue, states, items)
  local sorted, listed = {}, {}
  for _, item in ipairs(items) do
    if item.is_listed then
      listed[#listed + 1] = item
    elseif item.name ~= '' then
      sorted[#sorted + 1] = item
    end
  end
  if listed[1] then leave_listed(queue, states, listed) end
  if not sorted[1] then return end
  local function members_of(mark)
    local members = {}
    for i, item in ipairs(sorted) do members[i] = item.name .. mark .. item.ref end
    return members
  end
  local members, left = members_of('\0001'), 0
  for first = 1, #members, 1000 do
    left = left + call('ZREM', K.grouped(queue.name), unpack(members, first, math.min(first + 999, #members)))
  end
  if left < #members then call_in_batches('ZREM', K.grouped(queue.name), members_of('\0000')) end
end

-- Items that could go leave their groups; the caller saves them. Those that were freed stand nowhere yet, see freed_groups.lua.
local function leave_groups(queue, states, items)
  local going = {}
  leave_lists(queue, states, items)
  for _, item in ipairs(items) do
    if item.is_freed then item.is_freed = nil else going[#going + 1] = item.stands end
    local state = states[item.name]
    -- What stands there of a list that is void is in no group.
    if state and (item.was_listed or not item.is_listed) then state.going = state.going - 1 end
    if state and not item.is_listed then state.waiting = state.waiting - 1 end
  end
  call_in_batches('ZREM', K.going(queue.name), going)
end
