--- choice: which message goes to whom, in order.
--- @include index_heads, index_places, journal, watchers, deliverable

local function settle_missing(queue, refs)
  if #refs == 0 then return end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.missing, '', refs, '')
  notify_watchers(queue, refs)
end

-- Gives refs, fields, ends of lives and subscriptions of at most `wanted` messages, and `given`, their members; tokens rise from `token`.
-- is_fresh: all were read from the logs in this call, and are in their order. What somebody removed from its log is settled as missing. A room that is full takes part no more.
local function choose_messages(queue, plan, rooms, wanted, token, read, now)
  local refs, fields, subscriptions, given, written, missing = {}, {}, {}, {}, {refs = {}, members = {}}, {}
  local ends, over = {}, {}
  for _, room in ipairs(rooms) do begin_room(room, wanted) end
  local number, subscription, room, run, taken = 0, nil, nil, 0, 0
  local bytes, marked = 0, 0
  while number < wanted and bytes < V.bytes and #missing + #over < V.batch do
    if run == 0 and not rooms[2] then subscription, room, run = best_of_rooms(rooms, true) end
    local member, matching = nil, nil
    if subscription or rooms[2] then member, matching = first_of_indexes(queue, plan, rooms, given) end
    if not member then break end
    if rooms[2] then subscription, room, run = best_of_rooms(matching, false) end
    local ref = ref_of_member(member)
    local entry = subscription and (read[ref] or fields_of_ref(ref))
    given[member] = true
    if subscription and matching[1].last ~= 'fresh' then
      marked = marked + 1
      written.refs[marked], written.members[marked] = ref, member
    end
    local fate, at = nil, nil
    if entry and (#entry > 2 or queue.life > 0) then fate, at = fate_of(queue, ref, entry, true, now) end
    if fate then
      over[#over + 1] = ref
    elseif entry then
      number, run, taken = number + 1, run - 1, taken + 1
      refs[number], fields[number], subscriptions[number], ends[number] = ref, entry, subscription, at or false
      bytes = bytes + size_of_fields(entry)
    elseif subscription then
      missing[#missing + 1] = ref
    end
    if taken > 0 and (run == 0 or number == wanted) then
      give_to_best(room, queue, subscription, taken, token + number)
      run, taken = 0, 0
    end
  end
  if taken > 0 then give_to_best(room, queue, subscription, taken, token + number) end
  local cut = number == wanted or bytes >= V.bytes or #missing + #over >= V.batch
  local more = cut and wanted > 0 and first_of_indexes(queue, plan, rooms, given) ~= nil
  if #written.refs > 0 then remove_from_indexes(queue, written.refs, written.members) end
  settle_missing(queue, missing)
  expire_read(queue, over)
  return {refs = refs, fields = fields, subscriptions = subscriptions, given = given, more = more, ends = ends,
    over = #over, is_fresh = marked == 0}
end
