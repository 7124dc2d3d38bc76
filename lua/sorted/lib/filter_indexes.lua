--- filter_indexes: the distinct filters of a queue's subscriptions, each with an index as long as somebody uses it.
--- @include queue, place_reset, timetable

local function save_filter_names(queue, names)
  queue.sorted = names
  loaded_queues[queue.name] = nil
  if names then
    call('HSET', K.queue(queue.name), F.sorted, names)
  else
    call('HDEL', K.queue(queue.name), F.sorted)
    call('DEL', K.filters(queue.name))
  end
end

local function drop_filter(queue, id)
  call('UNLINK', K.sorted(queue.name, id))
  call('HDEL', K.filters(queue.name), 'filter ' .. id, 'users ' .. id, 'place ' .. id)
  local names = {}
  for name in string.gmatch(queue.sorted, '%S+') do
    if name ~= id then names[#names + 1] = name end
  end
  save_filter_names(queue, table.concat(names, ' '))
end

-- A queue whose definition sorts nothing, and that no subscription filters, is plain again. False when that has to wait.
local function end_sorting(queue)
  if queue.sorted ~= V.none or call('HEXISTS', K.filters(queue.name), F.kept) == 1 then return true end
  if not reset_places(queue) then
    call('HSET', K.filters(queue.name), F.resort, 1)
    return false
  end
  save_filter_names(queue, nil)
  return true
end

-- At most so many filters; one that nobody uses any more makes room at once, and so does the one that is given up if it
-- has no other user. Writes nothing.
local function has_room_for_filter(name, id, given_up)
  local fields = call('HGETALL', K.filters(name))
  local used, unused = 0, nil
  for i = 1, #fields, 2 do
    local kind, found = string.match(fields[i], '^(%l+) ?(.*)$')
    if kind == 'filter' and found == id then return true, nil end
    if kind == 'users' and (fields[i + 1] == '0' or found == given_up and fields[i + 1] == '1') then unused = found end
    if kind == 'users' then used = used + 1 end
  end
  return used < V.max_filters or unused ~= nil, used >= V.max_filters and unused or nil
end

local function join_filter(name, id, tree)
  local _, unused = has_room_for_filter(name, id)
  if unused then drop_filter(load_queue(name), unused) end
  local queue = load_queue(name)
  call('HINCRBY', K.filters(name), 'users ' .. id, 1)
  if call('HSETNX', K.filters(name), 'filter ' .. id, tree) == 0 then return end
  if call('EXISTS', K.sorted(name, V.none)) == 1 then call('HSET', K.filters(name), 'place ' .. id, '-inf') end
  save_filter_names(queue, (queue.sorted or V.none) .. ' ' .. id)
end

-- What another instance asks with is kept as if its last user had just left. It takes the place of an unused one that nobody has
-- asked with for a while, and of no other; false where there is none.
local function keep_asked_filter(name, id, tree, now)
  local users, member = call('HGET', K.filters(name), 'users ' .. id), 'filter ' .. name .. ' '
  if not users then
    local fits, unused = has_room_for_filter(name, id)
    local until_when = unused and tonumber(call('ZSCORE', K.due(), member .. unused) or 0)
    if not fits or unused and until_when > now + V.keep_filter - V.asked_lately then return false end
    join_filter(name, id, tree)
    users = string.format('%d', call('HINCRBY', K.filters(name), 'users ' .. id, -1))
  end
  if users == '0' then add_due(now + V.keep_filter, member .. id) end
  return true
end

local function leave_filter(name, id, now)
  if id == V.none or call('HEXISTS', K.filters(name), 'filter ' .. id) == 0 then return end
  if call('HINCRBY', K.filters(name), 'users ' .. id, -1) > 0 then return end
  add_due(now + V.keep_filter, 'filter ' .. name .. ' ' .. id)
end

-- Its time to be kept is over, unless somebody came meanwhile.
local function forget_filter(name, id, now)
  local queue = load_queue(name)
  if call('HGET', K.filters(name), 'users ' .. id) == '0' then drop_filter(queue, id) end
  queue = load_queue(name)
  if queue.sorted and not end_sorting(queue) then
    add_due(now + 1000, 'filter ' .. name .. ' ' .. id)
    add_due(now, 'dispatch ' .. name, 'NX')
  end
end
