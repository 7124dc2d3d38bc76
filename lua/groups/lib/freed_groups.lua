--- freed_groups: groups of which leases ended in this call: what is next of each is given, or stands among what may go from then on.
--- @include group_state, batch

-- The first message of each group that was kept (`keep_freed`), in the order in which they were freed. Whoever asks gives them, or calls
-- `stand_freed` for those that are not given.
local function take_freed(queue)
  local freed, items = queue.freed, {}
  if not freed then return items end
  queue.freed = nil
  for _, name in ipairs(freed.list) do
    local state = freed.states[name]
    local item = state and items_in_group(queue, state, 0, 1)[1]
    if item then
      state.going, state.score = 1, score_of(queue, state)
      item.score, item.is_freed, item.state = state.score, true, state
      items[#items + 1] = item
    elseif state then
      save_groups(queue, {[name] = state})
    end
  end
  return items
end

-- They stand among what may go. states: to these their groups are added, which the caller saves.
local function stand_freed(queue, items, states)
  local places = {}
  for _, item in ipairs(items) do
    places[#places + 1], places[#places + 2] = string.format('%d', item.score), place_of_item(item) .. item.name
    item.is_freed, states[item.name] = nil, item.state
  end
  call_in_batches('ZADD', K.going(queue.name), places)
end

local function save_standing(queue, items)
  local states = {}
  stand_freed(queue, items, states)
  save_groups(queue, states)
end
