--- claim_messages: of messages that their owner offers, name those that somebody here is free for; it grants them then.
--- ARGV now, queue_name, to, owner, offered, place, bookmarks...
--- FAIL UNKNOWN_QUEUE
--- GIVES how many were named
--- FLAGS allow-oom
--- @include clock, fail, requests, log_catch_up, foreign_bookmarks
-- to: the origin that asked; an offer to another one is nothing to this instance. offered: for how many the owner was asked. Only
-- what waits here, as another's, is named: what a filter keeps out, what lies before the begin of the queue, what is settled, is not.
-- Where that leaves nothing, the owner is asked to go on behind the place. Call it late or twice: it is a hint.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local own = names_of_instance().origin
if to ~= own or not may_ask(queue) then return 0 end
local plan = queue.sorted and load_plan(queue) or nil
local room, wishes = room_here(queue, plan)
if room <= 0 then return 0 end
local answered, requested = unpack(call('HMGET', K.queue(queue_name), F.answered, F.requested))
catch_up_with_logs(queue, ms)

local at, since, former_room, ahead = string.match(requested or '', '^(%d+) (%d+) (%d+) (%d+)$')
local asked_at, rest = math.min(tonumber(at or ms), ms), ' ' .. (former_room or room) .. ' ' .. (ahead or 0)
since = tonumber(since or ms)
room = math.min(room + math.max(settling_pace(queue, answered, ms), tonumber(ahead or 0)), tonumber(offered))
local barrier, refs, marks, named = waiting_barrier(queue), {}, {}, {}
for i = bookmarks_from, #ARGV do
  if #refs == room or plan and plan.spent.work >= V.sort_work then break end
  local here, topic = find_bookmark(ARGV[i], own)
  local ref = here and ref_of(topic, here)
  if ref and not (barrier and barrier < ref) and call('ZSCORE', K.remote(queue_name), ref) then
    local entry = call('XRANGE', K.log(topic), here, here)[1]
    if entry and is_wanted(plan, wishes, ref, entry[2], ms) then
      local number = #refs + 1
      refs[number], named[number] = ref, topic .. '~' .. message_owner().counting_source(topic, here, entry[2])
      marks[2 * number - 1], marks[2 * number] = asked_at, ref
    end
  end
end

-- Without a pause as long as there is more to be offered; a walk that was in vain comes again after four times as long.
if refs[1] then
  call_in_batches('ZADD', K.asked(queue_name), marks)
  write_request(queue, F.rooms, owner .. ' ' .. room, F.bookmarks, table.concat(named, ' '), F.heard, heard_journals(queue))
elseif place ~= '' then
  write_wishes(queue, plan, wishes, owner .. ' ' .. offered, place, ms)
  call('HSET', K.queue(queue_name), F.requested, string.format('%.0f %.0f', ms, since) .. rest)
else
  local again_at = ms + math.max(math.min(4 * (ms - since), V.named_kept / 2) - V.ask_again, 0)
  call('HSET', K.queue(queue_name), F.requested, string.format('%.0f %.0f', again_at, since) .. rest)
end
return #refs
