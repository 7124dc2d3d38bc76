--- rebuild: one step of rebuilding a queue: what is to be ready is collected, what is settled behind the new cursors is noted.
--- ARGV now, queue_name, owner, period, after, boundary, refs...
--- FAIL UNKNOWN_QUEUE, REBUILDING
--- GIVES {number done, or -1: read the journal on and ask again; the journal's last ID; how many of them the queue's filter kept out}
--- FLAGS allow-oom
--- @include clock, fail, paused_queue, verdict, schedule, batch
-- refs: each with how much it is settled up to the journal's ID `after`. boundary: the last ref that will be read.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
check_rebuilder(queue_name, owner)
local tail, last = read_journal_tail(queue_name, after)
if not tail then return {-1, after, 0} end
local refs, settled, plan = {}, {}, load_plan(queue)
for i = refs_from, #ARGV, 2 do
  refs[#refs + 1] = ARGV[i]
  settled[#refs] = ARGV[i + 1] + (tail[ARGV[i]] or 0) > 0
end
local letters, done, kept_out = places_of(queue, refs), 0, 0
local ready, noted, wrong, scheduled, over, waiting, remote = {}, {}, {}, {}, {}, {}, {}
local attempts = call('EXISTS', K.attempts(queue_name)) == 1 and refs[1] and call('HMGET', K.attempts(queue_name), unpack(refs))

local function read(ref)
  local topic, id = parse_ref(ref)
  local entry = entry_read({plan = plan}, topic, id)
  if not entry then return end
  local is_in, is_kept_out = belongs_to_queue(queue, ref, entry[2], ms)
  if is_kept_out then kept_out = kept_out + 1 end
  if not is_in then return end
  local fate, at, ends = fate_of(queue, ref, entry[2], false, ms)
  if fate == V.scheduled then
    local number = #scheduled
    scheduled[number + 1], scheduled[number + 2], scheduled[number + 3] = ref, at, ends or false
  elseif fate == V.remote then
    remote[#remote + 1], remote[#remote + 2] = 0, ref
  else
    ready[#ready + 1], ready[#ready + 2] = 0, ref
  end
end

for i, ref in ipairs(refs) do
  local is_noted, is_live = string.sub(letters[i], -1) == 'a', string.find(letters[i], '^[^a]') ~= nil
  if not is_live then waiting[#waiting + 1] = ref end
  local came_back = attempts and attempts[i]
  if settled[i] then
    call('ZREM', K.rebuilt(queue_name), ref)
    if came_back then over[#over + 1] = ref end
  end
  -- What came back is not read from its log: its attempts would not count.
  if ref > boundary and came_back and not settled[i] and not is_live then
    read(ref)
    if not is_noted then noted[#noted + 1], noted[#noted + 2] = ref, V.delivered end
  elseif ref > boundary then
    if (settled[i] or is_live) and not is_noted then
      noted[#noted + 1], noted[#noted + 2] = ref, settled[i] and V.acknowledged or V.delivered
    elseif is_noted and not settled[i] and not is_live then
      wrong[#wrong + 1] = ref
    end
  elseif not settled[i] and not is_live then
    read(ref)
  end
  done, plan.spent.work = done + 1, plan.spent.work + 0.3
  if plan.spent.work >= V.sort_work then break end
end
call_in_batches('ZADD', K.rebuilt(queue_name), ready)
call_in_batches('ZADD', K.remote(queue_name), remote)
-- Their lives are found by the order of arrival, from the beginning.
call_in_batches('ZREM', K.lives(queue_name), waiting)
schedule_messages(queue, scheduled)
call_in_batches('HSET', K.ahead(queue_name), noted)
call_in_batches('HDEL', K.ahead(queue_name), wrong)
call_in_batches('HDEL', K.attempts(queue_name), over)
keep_rebuilding(queue_name, owner, ms + period)
return {done, last, kept_out}
