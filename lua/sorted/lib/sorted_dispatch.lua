--- sorted_dispatch: dispatch for a queue that judges its messages: sort as far as somebody needs it, then give by the indexes.
--- @include choice, sort_until_served, chosen_handover, index_building(), ring_eviction, bells

-- What only few calls need is made when it is first needed.
local parts = {}

local function index_part()
  parts.index = parts.index or index_building()
  return parts.index
end

-- A filter that somebody free has and whose index is not built yet.
local function build_indexes(queue, plan, rooms, now)
  local done = true
  for _, room in ipairs(rooms) do
    while plan.places[room.filter] and plan.spent.work < V.sort_work do
      index_part().build_index_step(queue, plan, room.filter, now) end
    done = done and not plan.places[room.filter]
  end
  return done
end

-- A message that was counted for several rooms went to one of them: for the others there may be more to read.
local function may_want_more(queue, rooms)
  local left = false
  for _, room in ipairs(rooms) do left = left or room.list[1] ~= nil or room.more end
  return rooms[2] and left and something_waits(queue)
end

local function has_place(queue, room)
  return call('EXISTS', K.sorted(queue.name, room.filter)) == 1
end

local function is_anybody_free(rooms)
  for _, room in ipairs(rooms) do
    if room.list[1] then return true end
  end
  return false
end

local function sort_and_give(queue, plan, rooms, now, limit, own, duty)
  local read, given = {}, {}
  if plan.trees.resort and not resort_part().reset_places_to_judge(queue, plan) then return given, true end
  local sorted = sort_and_pass_barriers(queue, plan, rooms, limit, duty, now, read, own, given)
  local strict = plan.trees.priority or first_ready(queue, 1, waiting_barrier(queue))[1] ~= nil
  if not rooms[1] or not sorted and strict then
    save_fresh(queue, plan, {})
    if rooms[1] then return given, true end
    local unfinished = plan.trees.priority and (not sorted or not duty)
      or (plan.trees.barrier or plan.trees.ring) and not sorted
    return given, unfinished and something_waits(queue)
  end
  local built = build_indexes(queue, plan, rooms, now)
  if not is_anybody_free(rooms) then
    save_fresh(queue, plan, {})
    for _, room in ipairs(rooms) do ring_for_rest(queue, room, has_place) end
    return given, not sorted or not built
  end
  local wanted = math.max(math.min(limit, deliveries_left(queue), V.batch), 0)
  local token = token_before(queue, now)
  local chosen = choose_messages(queue, plan, rooms, wanted, token, read, now)
  -- A ring may choose once more in this call.
  chosen.may_be_run = not plan.trees.ring
  save_fresh(queue, plan, chosen.given)
  plan.given = #chosen.refs
  if plan.given > 0 then write_deliveries(queue, chosen, token, own, now, given) end
  for _, room in ipairs(rooms) do
    close_room(room, queue)
    ring_for_rest(queue, room, has_place)
  end
  -- What was over had been counted for somebody.
  local may_be_more = chosen.over > 0 and something_waits(queue) or #chosen.refs > 0 and may_want_more(queue, rooms)
  return given, not sorted or not built or chosen.more or may_be_more
end

-- As `dispatch_queue`. What a ring evicts makes room below the target depth, so that it goes on reading while the work lasts.
local function dispatch_sorted(queue, now, limit, own, duty)
  local plan, given, more, again = load_plan(queue), nil, false, false
  plan.ring_from = plan.trees.ring and string.match(plan.trees.ring, '^%d+ ?(.*)$') or ''
  repeat
    plan.fresh, plan.entered, plan.given = empty_finds(plan), 0, 0
    local step, left = sort_and_give(queue, plan, open_rooms(queue, plan, limit, own), now, limit, own, duty)
    given = given or step
    if given ~= step then
      for i = 1, #step do given[#given + 1] = step[i] end
    end
    again = plan.trees.ring and evict_oldest(queue, plan)
    more, limit = more or left or again, limit - plan.given
  until not again or limit <= 0 or plan.spent.work >= V.sort_work
  return given, more
end
