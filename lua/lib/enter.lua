--- enter: what was read and may not be delivered leaves the lists: it is for another queue, not due yet, or its life is over.
--- @include life, schedule, leases

local function settle_over(queue, refs)
  if not refs[1] then return end
  expire(queue, V.time_limit, refs, {}, '')
  note_changes(queue, refs)
end

-- messages: as `waiting` gives them. ends: of those that stay, ms when their life is over, or false.
local function keep_deliverable(queue, messages, now)
  local kept, number, scheduled, over, ends = {refs = {}, fields = {}, deliveries = {}}, 0, {}, {}, {}
  local remote = {}
  local returned = 0
  for i, ref in ipairs(messages.refs) do
    local was_read = i <= messages.returned
    local fate, at, end_later = fate_of(queue, ref, messages.fields[i], was_read, now)
    if not fate then
      number = number + 1
      kept.refs[number], kept.fields[number] = ref, messages.fields[i]
      kept.deliveries[number], ends[number] = messages.deliveries[i], at or false
      if was_read then returned = returned + 1 end
    elseif fate == V.scheduled then
      scheduled[#scheduled + 1], scheduled[#scheduled + 2], scheduled[#scheduled + 3] = ref, at, end_later or false
    elseif fate == V.expired then
      over[#over + 1] = ref
    elseif fate == V.remote then
      remote[#remote + 1], remote[#remote + 2] = 0, ref
    end
  end
  messages.refs, messages.fields, messages.deliveries = kept.refs, kept.fields, kept.deliveries
  messages.returned, messages.ends = returned, ends
  call_in_batches('ZADD', K.remote(queue.name), remote)
  schedule(queue, scheduled)
  settle_over(queue, over)
end
