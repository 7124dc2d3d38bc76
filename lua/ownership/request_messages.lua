--- request_messages: ask the other instances for messages of a queue that somebody here is free for and that wait elsewhere.
--- ARGV now, queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES how many were asked for
--- FLAGS allow-oom
--- @include clock, fail, request_shares, judging_plan, log_catch_up, incarnations, message_owner()
-- Those that have been here for twice the usual time from arrival to settlement, oldest first, as many as there is room; none
-- that was asked for within the last second. Of those asked for in vain some are asked for again, and as many more beyond
-- them: what the owner's subscriptions hold is oldest, and would else be asked for and nothing else. It says how much room there is
-- of each owner, and which journals are known here, so that what is named beyond the room is not granted (ownership/lib/unheard_grants).
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local plan = queue.sorted and load_plan(queue) or nil
local room, filters = room_here(queue, plan)
if room <= 0 or not queue.owner or queue.recovering or queue.backlog == V.no_room then return 0 end
catch_up_with_logs(queue, ms)

call('ZREMRANGEBYSCORE', K.asked(queue_name), '-inf', ms - 10 * V.ask_again)
local usual, answered, beyond = unpack(call('HMGET', K.queue(queue_name), F.usual, F.answered, F.beyond))
room = math.min(room + settling_pace(queue, answered, ms), 2 * V.batch)
usual = math.max(2 * (usual or 0), V.usual_least)
local before, barrier = order_of(string.format('%.0f-0', math.max(ms - usual, 0))), waiting_barrier(queue)
if barrier and barrier < before then before = barrier end
local refs = call('ZRANGE', K.remote(queue_name), '-', '(' .. before, 'BYLEX', 'LIMIT', 0, 2 * V.batch)
local asked = refs[1] and call('ZMSCORE', K.asked(queue_name), unpack(refs)) or {}

-- Behind the last one that was granted others wait, perhaps, that were named in vain for want of room alone. Those before it
-- are held: of them a few are asked for each time.
local front, since = string.match(answered or '', '^(%S+) (%d+)')
since = math.min(tonumber(since or 0), tonumber(beyond or 0))
local again, fresh, times = math.min(room, V.batch), room, {}
local function is_behind(ref) return not front or ref > front end
for i, ref in ipairs(refs) do
  local at = tonumber(asked[i] or nil)
  if at and front and ref > front and at <= since then at = nil end
  times[i] = at
  if at and is_behind(ref) then fresh = fresh + (at <= ms - V.ask_again and 1 or -1) end
end
fresh = math.min(fresh, V.batch)
local is_more = fresh > room

local owners, named = {}, {}
for i, ref in ipairs(refs) do
  if again <= 0 and fresh <= 0 or plan and plan.spent.work >= V.sort_work then break end
  local at, is_probe = times[i], times[i] ~= nil or not is_behind(ref)
  local is_due = (not at or at <= ms - V.ask_again) and (is_probe and again or fresh) > 0
  if is_due then
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    if entry and is_wanted(plan, filters, ref, entry[2], ms) then
      if is_probe then again = again - 1 else fresh = fresh - 1 end
      local name = message_owner().owner_of(queue, ref, entry[2])
      if not named[name] then owners[#owners + 1], named[name] = name, {} end
      table.insert(named[name], {ref = ref, bookmark = topic .. '~' .. message_owner().counting_source(topic, id, entry[2])})
    end
  end
end
if not owners[1] then return 0 end
local rooms, chosen, bookmarks, marks = {}, {}, {}, {}
local shares = share_of_each(owners, room, ms)
for _, name in ipairs(owners) do
  if shares[name] > 0 then
    rooms[#rooms + 1] = name .. ' ' .. shares[name]
    for _, each in ipairs(named[name]) do chosen[#chosen + 1] = each end
  end
end
table.sort(chosen, function(one, other) return one.ref < other.ref end)
for i, each in ipairs(chosen) do bookmarks[i], marks[2 * i - 1], marks[2 * i] = each.bookmark, ms, each.ref end
call('ZADD', K.asked(queue_name), unpack(marks))
if is_more then call('HSET', K.queue(queue_name), F.beyond, ms) end
call('XADD', K.requests(), 'MAXLEN', '~', V.requests, '*', F.queues, queue_name, F.owner, names_of_instance().origin,
  F.rooms, table.concat(rooms, ' '), F.heard, heard_journals(queue), F.bookmarks, table.concat(bookmarks, ' '))
return #bookmarks
