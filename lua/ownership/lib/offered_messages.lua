--- offered_messages: which messages of a queue wait here and match what another instance wishes, in their order.
--- @include sort_until_served, index_building, log_catch_up, message_owner(), journal, watchers, set_rank
-- A place is `<filter> <score> <member>`: behind it an offer goes on.

-- Somebody removed it from its log.
local function drop_missing(queue, refs, members)
  if not refs[1] then return end
  if queue.sorted then remove_from_indexes(queue, refs, members) else call_in_batches('ZREM', K.ready(queue.name), refs) end
  call_in_batches('HDEL', K.attempts(queue.name), refs)
  write_journal(queue.name, V.missing, '', refs, '')
  notify_watchers(queue, refs)
end

-- The index of a plain queue is what is ready.
local function index_of(queue, wish)
  return queue.sorted and K.sorted(queue.name, wish.filter) or K.ready(queue.name)
end

-- Reads and sorts as far as is needed, bounded as a dispatch is; a target depth ends no reading for who is elsewhere. Returns whether
-- that was done, whether nothing may be offered before it is, and up to where indexes are built.
local function sort_for_wishes(queue, wishes, now)
  local plan, rooms, depth = load_plan(queue), {}, queue.depth
  if plan.trees.resort and not resort_part().reset_places_to_judge(queue, plan) then return false, true, {} end
  for i, wish in ipairs(wishes) do
    rooms[i] = {filter = wish.filter, total = wish.first + wish.wanted, list = {true}}
  end
  plan.fresh, plan.entered = empty_finds(plan), 0
  plan.ring_from = plan.trees.ring and string.match(plan.trees.ring, '^%d+ ?(.*)$') or ''
  if not plan.trees.ring then queue.depth = 0 end
  local is_sorted = sort_until_served(queue, plan, rooms, math.huge, true, now, {})
  queue.depth = depth
  save_fresh(queue, plan, {})
  for _, wish in ipairs(wishes) do
    while plan.places[wish.filter] and plan.spent.work < V.sort_work do build_index_step(queue, plan, wish.filter, now) end
    is_sorted = is_sorted and not plan.places[wish.filter]
  end
  -- By priority the best of all comes first.
  return is_sorted, not is_sorted and plan.trees.priority ~= nil, plan.places
end

local function read_for_wishes(queue, wishes, now)
  local needed = 0
  for _, wish in ipairs(wishes) do needed = math.max(needed, wish.first + wish.wanted) end
  if call('ZCARD', K.ready(queue.name)) >= needed then return true end
  return catch_up_with_logs(queue, now)
end

-- The next of an index; bytes: what was read of bodies so far. Returns the place behind what was looked at, nil at the end of the index.
local function offer_page(queue, wish, limit, place, found)
  local key, refs, members, last = index_of(queue, wish), {}, {}, nil
  local page = call('ZRANGE', key, wish.first, wish.first + wish.wanted - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    local member, score = page[i], tonumber(page[i + 1])
    if place and (place.member == '' or is_before(place.score, place.member, score, member)) then break end
    if #found.bookmarks >= limit or found.bytes >= V.bytes then return last or wish.place or wish.filter .. ' -inf -' end
    local ref = ref_of_member(member)
    local topic, id = parse_ref(ref)
    local entry = not found.seen[ref] and call('XRANGE', K.log(topic), id, id)[1]
    if entry then
      found.seen[ref], found.bytes = true, found.bytes + size_of_fields(entry[2])
      found.bookmarks[#found.bookmarks + 1] = topic .. '~' .. message_owner().counting_source(topic, id, entry[2])
    elseif not found.seen[ref] then
      refs[#refs + 1], members[#members + 1] = ref, member
    end
    last = wish.filter .. ' ' .. page[i + 1] .. ' ' .. member
  end
  drop_missing(queue, refs, members)
  return #page == 2 * wish.wanted and last or nil
end

-- wishes: filter and room of each. room: for all. place: '' or where an offer ended. Returns bookmarks, the place behind them
-- (''  at the end of all), and whether everything was looked at.
local function find_offered(queue, wishes, room, place, now)
  local filter, score, member = string.match(place, '^(%S+) (%S+) (.*)$')
  local open, found = {}, {bookmarks = {}, seen = {}, bytes = 0}
  local limit = filter and V.batch / 2 or math.min(room, V.batch)
  for _, wish in ipairs(wishes) do
    wish.first, wish.wanted = 0, filter and limit or math.min(wish.room, limit)
    if wish.filter == filter then
      open, wish.first, wish.place = {}, rank_after(index_of(queue, wish), tonumber(score), member), place
    end
    open[#open + 1] = wish
  end
  local is_all, is_strict, places = true, false, {}
  if not open[1] then return {}, '', true end
  if queue.sorted then
    is_all, is_strict, places = sort_for_wishes(queue, open, now)
  else
    is_all = read_for_wishes(queue, open, now)
  end
  local next_place = nil
  for _, wish in ipairs(is_strict and {} or open) do
    local behind = offer_page(queue, wish, limit, places and places[wish.filter], found)
    next_place = next_place or behind
  end
  return found.bookmarks, next_place or '', is_all
end
