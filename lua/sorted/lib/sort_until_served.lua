--- sort_until_served: a queue that judges its messages sorts as far as somebody needs it, and no farther.
--- @include index_heads, barrier_delivery(), place_reset()

-- What only few calls need is made when it is first needed.
local loaded_parts = {}

local function barrier_part()
  loaded_parts.barrier = loaded_parts.barrier or barrier_delivery()
  return loaded_parts.barrier
end

local function resort_part()
  loaded_parts.resort = loaded_parts.resort or place_reset()
  return loaded_parts.resort
end

local function open_rooms(queue, plan, limit, own)
  local rooms = {}
  local function open(filter)
    local room = open_room(queue.name, filter, limit, own and own.filter == filter and own or nil)
    if room.list[1] or room.bells then rooms[#rooms + 1] = room end
  end
  open(V.none)
  for _, id in ipairs(plan.filters) do open(id) end
  return rooms
end

-- How many more messages are wanted in their places, at least: by priority all, else as many as somebody has room for, and one for bells.
-- The second value tells whether a filter is to find them.
local function places_wanted(queue, plan, rooms, limit, duty)
  if plan.trees.ring then return V.batch end
  if plan.trees.priority then return (duty or rooms[1]) and V.batch or 0 end
  local needed, by_filter = 0, false
  for _, room in ipairs(rooms) do
    local lacking = math.min(room.total + (room.bells and 1 or 0), limit) - call('ZCARD', K.sorted(queue.name, room.filter))
      - #plan.fresh.indexes[room.filter] / 2
    needed, by_filter = math.max(needed, lacking), by_filter or lacking > 0 and room.filter ~= V.none
  end
  if needed > 0 or not plan.trees.barrier then return needed, by_filter end
  -- A barrier is found only by reading up to it; what came due may be one, before all that has its place.
  local ready = first_ready(queue, 1, waiting_barrier(queue))[1]
  return barrier_part().something_placed(queue, plan, ready) and 0 or 1
end

-- A barrier that came due may have come before what has its place: that is behind it, and all is judged anew. False while
-- something is left where it was.
local function reset_places_behind_barrier(queue, plan)
  local barrier = waiting_barrier(queue)
  local last = barrier and call('ZRANGE', K.sorted(queue.name, V.none), -1, -1)[1]
  if not last or last < barrier then return true end
  call('HSET', K.filters(queue.name), F.resort, 1)
  plan.trees.resort = 1
  return resort_part().reset_places_to_judge(queue, plan)
end

-- Returns whether everything that had to be sorted was; what came back comes before anything is given.
local function sort_until_served(queue, plan, rooms, limit, duty, now, read)
  local step, last_needed, last_read = math.max(math.floor(200 / (2 + #plan.filters)), 4), nil, 0
  while plan.spent.work < V.sort_work do
    local needed, by_filter = places_wanted(queue, plan, rooms, limit, duty)
    local lacking = needed
    -- Where too few of the first ones matched, more are read at a time; for one room as many as make up for it, if they are like the first.
    if last_needed and by_filter then
      local matched = rooms[2] and 0 or last_needed - needed
      needed = matched > 0 and math.min(math.ceil(needed * last_read / matched), step) or step
    end
    last_needed = lacking
    local barrier = waiting_barrier(queue)
    local returned = (needed > 0 or rooms[1]) and first_ready(queue, 1, barrier)[1] ~= nil
    if barrier then needed = 0 end
    if not returned and needed == 0 then return true end
    -- What has come back or come due may be a barrier, and then nothing more is read.
    local from_log = returned and plan.trees.barrier and 0 or math.min(needed, step)
    local count, exhausted = sort_step(queue, plan, step, from_log, barrier, now, read)
    last_read = count
    if plan.trees.barrier and not reset_places_behind_barrier(queue, plan) then return false end
    if count == 0 and exhausted then return true end
    -- What is missing from its log is work too.
    if count == 0 then plan.spent.work = plan.spent.work + 2 * step end
    if count == 0 and not returned then return not something_waits(queue) end
  end
  return false
end

-- Whether everything was sorted that had to be; barriers whose turn it is are sent on the way.
local function sort_and_pass_barriers(queue, plan, rooms, limit, duty, now, read, own, out)
  while true do
    local sorted = sort_until_served(queue, plan, rooms, limit, duty, now, read)
    if not plan.trees.barrier or not waiting_barrier(queue) then return sorted end
    save_fresh(queue, plan, {})
    if not barrier_part().pass_barrier(queue, plan, now, own, out) then return sorted end
    if plan.spent.work >= V.sort_work then return false end
  end
end
