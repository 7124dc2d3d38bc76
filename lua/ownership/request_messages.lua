--- request_messages: ask the other instances for messages of a queue that somebody here is free for and that wait elsewhere.
--- ARGV now, queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES for how many was asked
--- FLAGS allow-oom
--- @include clock, fail, requests, log_catch_up
-- No message is named: which those are that nobody there can take, an owner knows (offer_messages). Asked is where one has been here for
-- twice the usual time from arrival to settlement, within bounds, and is asked again after a while, or at once when something was
-- granted, or there is more room.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not may_ask(queue) then return 0 end
local plan = queue.sorted and load_plan(queue) or nil
local room, wishes = room_here(queue, plan)
if room <= 0 then return 0 end
catch_up_with_logs(queue, ms)

call('ZREMRANGEBYSCORE', K.asked(queue_name), '-inf', ms - V.named_kept)
local usual, answered, requested = unpack(call('HMGET', K.queue(queue_name), F.usual, F.answered, F.requested))
local ahead = settling_pace(queue, answered, ms)
room = math.min(room + ahead, 2 * V.batch)
for _, wish in ipairs(wishes) do wish.room = wish.room + ahead end
usual = math.min(math.max(2 * (usual or 0), V.usual_least), V.usual_most)
local before, barrier = order_of(string.format('%.0f-0', math.max(ms - usual, 0))), waiting_barrier(queue)
if barrier and barrier < before then before = barrier end
local oldest = call('ZRANGE', K.remote(queue_name), '-', '(' .. before, 'BYLEX', 'LIMIT', 0, 1)[1]
if not oldest then return 0 end

local at, _, former_room = string.match(requested or '', '^(%d+) (%d+) (%d+)')
if at then
  local granted_at, wait = tonumber(string.match(answered or '', '^%S+ (%d+)') or 0), ms - at
  local is_early = wait < V.ask_again and wait > -V.named_kept
  if is_early and granted_at < tonumber(at) and room <= tonumber(former_room) then return 0 end
end
local shares = shares_of_owners(queue, oldest, room, ms)
call('HSET', K.queue(queue_name), F.requested, string.format('%.0f %.0f %d %d', ms, ms, room, ahead))
if shares == '' then return 0 end
write_wishes(queue, plan, wishes, shares, '', ms)
return room
