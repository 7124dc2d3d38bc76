--- deliverable: what was read and may not be delivered leaves the lists: it is for another queue, not due yet, or its life is over.
--- @include message_life, schedule, leases

local function expire_read(queue, refs)
  if not refs[1] then return end
  expire_messages(queue, V.time_limit, refs, {}, '')
  notify_watchers(queue, refs)
end

-- messages: as `next_messages` gives them. ends: of those that stay, ms when their life is over, or false.
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
  schedule_messages(queue, scheduled)
  expire_read(queue, over)
end
