--- sorting: dispatch for a queue that judges its messages: sort as far as somebody needs it, then give by the indexes.
--- @include choose, index(), barrier(), handover, resort(), ring

-- What only few calls need is made when it is first needed.
local parts = {}

local function barrier_part()
  parts.barrier = parts.barrier or barrier()
  return parts.barrier
end

local function index_part()
  parts.index = parts.index or index()
  return parts.index
end

local function resort_part()
  parts.resort = parts.resort or resort()
  return parts.resort
end

local function open_rooms(queue, plan, limit, own)
  local rooms = {}
  local function open(filter)
    local room = open_room(queue.name, filter, limit, own and own.filter == filter and own or nil)
    if room.list[1] then rooms[#rooms + 1] = room end
  end
  open(V.none)
  for _, id in ipairs(plan.filters) do open(id) end
  return rooms
end

-- How many more messages are wanted in their places, at least: by priority all, else as many as somebody has room for.
-- The second value tells whether a filter is to find them.
local function places_needed(queue, plan, rooms, limit, duty)
  if plan.trees.ring then return V.batch end
  if plan.trees.priority then return (duty or rooms[1]) and V.batch or 0 end
  local needed, by_filter = 0, false
  for _, room in ipairs(rooms) do
    local lacking = math.min(room.total, limit) - call('ZCARD', K.sorted(queue.name, room.filter))
      - #plan.fresh.indexes[room.filter] / 2
    needed, by_filter = math.max(needed, lacking), by_filter or lacking > 0 and room.filter ~= V.none
  end
  -- A barrier is found only by reading up to it.
  if needed == 0 and plan.trees.barrier and not barrier_part().something_placed(queue, plan) then return 1 end
  return needed, by_filter
end

-- Returns whether everything that had to be sorted was; what came back comes before anything is given.
local function sort_enough(queue, plan, rooms, limit, duty, now, read)
  local step, again = math.max(math.floor(200 / (2 + #plan.filters)), 4), false
  while plan.spent.work < V.sort_work do
    local needed, by_filter = places_needed(queue, plan, rooms, limit, duty)
    -- Where the first few had too few that match, more are read at a time.
    if again and by_filter then needed = step end
    again = true
    local barrier = waiting_barrier(queue)
    local returned = (needed > 0 or rooms[1]) and first_ready(queue, 1, barrier)[1] ~= nil
    if barrier then needed = 0 end
    if not returned and needed == 0 then return true end
    -- What has come back or come due may be a barrier, and then nothing more is read.
    local from_log = returned and plan.trees.barrier and 0 or math.min(needed, step)
    local count, exhausted = sort_some(queue, plan, step, from_log, barrier, now, read)
    if count == 0 and exhausted then return true end
    -- What is missing from its log is work too.
    if count == 0 then plan.spent.work = plan.spent.work + 2 * step end
    if count == 0 and not returned then return not something_waits(queue) end
  end
  return false
end

-- A filter that somebody free has and whose index is not built yet.
local function build_indexes(queue, plan, rooms, now)
  local done = true
  for _, room in ipairs(rooms) do
    while plan.places[room.filter] and plan.spent.work < V.sort_work do
      index_part().index_some(queue, plan, room.filter, now) end
    done = done and not plan.places[room.filter]
  end
  return done
end

-- given: what `own` is returned, behind what is in it already.
local function write_deliveries(queue, chosen, token, own, now, given)
  local leases, pushes, count = {}, {}, #chosen.refs
  local known = call('EXISTS', K.attempts(queue.name)) == 1 and call('HMGET', K.attempts(queue.name), unpack(chosen.refs))
  chosen.deliveries = {}
  for i = 1, count do
    local before = known and known[i] and string.match(known[i], '^%d+') or 0
    chosen.deliveries[i] = string.format('%d', before + 1)
  end
  call('HINCRBY', K.queue(queue.name), F.token, count)
  local deadline, at = deadline_of(queue, now), 1
  while at <= count do
    local subscription, last = chosen.subscriptions[at], at
    while chosen.subscriptions[last + 1] == subscription do last = last + 1 end
    local mine = subscription == own
    local out = mine and given or pushes[subscription.id] or {}
    if not mine then pushes[subscription.id] = out end
    hand_over(queue, chosen, at, last, subscription, token + at - 1, deadline, mine and element_of or pushed_element,
      leases, out)
    at = last + 1
  end
  write_leases(queue, now, leases, chosen.refs)
  for id, inbox in pairs(pushes) do call_in_batches('RPUSH', K.inbox(id), inbox) end
end

-- Whether everything was sorted that had to be; barriers whose turn it is are sent on the way.
local function sort_and_pass(queue, plan, rooms, limit, duty, now, read, own, out)
  while true do
    local sorted = sort_enough(queue, plan, rooms, limit, duty, now, read)
    if not plan.trees.barrier then return sorted end
    save_fresh(queue, plan, {})
    if not barrier_part().pass_barrier(queue, plan, now, own, out) then return sorted end
    if plan.spent.work >= V.sort_work then return false end
  end
end

-- A message that was counted for several rooms went to one of them: for the others there may be more to read.
local function may_want_more(queue, rooms)
  local left = false
  for _, room in ipairs(rooms) do left = left or room.list[1] ~= nil or room.more end
  return rooms[2] and left and something_waits(queue)
end

local function sort_and_give(queue, plan, rooms, now, limit, own, duty)
  local read, given = {}, {}
  if plan.trees.resort and not resort_part().judge_anew(queue, plan) then return given, true end
  local sorted = sort_and_pass(queue, plan, rooms, limit, duty, now, read, own, given)
  local strict = plan.trees.priority or first_ready(queue, 1, waiting_barrier(queue))[1] ~= nil
  if not rooms[1] or not sorted and strict then
    save_fresh(queue, plan, {})
    if rooms[1] then return given, true end
    local unfinished = plan.trees.priority and (not sorted or not duty)
      or (plan.trees.barrier or plan.trees.ring) and not sorted
    return given, unfinished and something_waits(queue)
  end
  local built = build_indexes(queue, plan, rooms, now)
  local wanted = math.max(math.min(limit, backlog_left(queue), V.batch), 0)
  local token = tonumber(call('HGET', K.queue(queue.name), F.token) or 0)
  local chosen = choose(queue, plan, rooms, wanted, token, read, now)
  save_fresh(queue, plan, chosen.given)
  if #chosen.refs > 0 then write_deliveries(queue, chosen, token, own, now, given) end
  for _, room in ipairs(rooms) do close_room(room, queue) end
  -- What was over had been counted for somebody.
  local may_be_more = chosen.over > 0 and something_waits(queue) or #chosen.refs > 0 and may_want_more(queue, rooms)
  return given, not sorted or not built or chosen.more or may_be_more
end

-- As `dispatch`.
local function dispatch_sorted(queue, now, limit, own, duty)
  local plan = load_plan(queue)
  plan.fresh, plan.entered = no_finds(plan), 0
  plan.ring_from = plan.trees.ring and string.match(plan.trees.ring, '^%d+ ?(.*)$') or ''
  local given, more = sort_and_give(queue, plan, open_rooms(queue, plan, limit, own), now, limit, own, duty)
  if plan.trees.ring and evict(queue, plan) then more = true end
  return given, more
end
