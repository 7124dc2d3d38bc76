--- topic_merge: several topics as one order, by the IDs of their entries.
--- @include log_front

-- One round over 32 topics, and more only while they may have older entries of the same millisecond; it ends where a
-- further topic may be older. True when another round may find more. What only such queues need is defined inside.
local function read_topics(queue, out, wanted, budget)
  local topics, fronts, loaded, further = {}, {}, 0, nil

  local function load_topics()
    local page = call('ZRANGE', K.behind(queue.name), loaded, loaded + 32, 'WITHSCORES')
    for i = 1, math.min(#page, 64), 2 do topics[#topics + 1] = {topic = page[i], ms = tonumber(page[i + 1])} end
    further = tonumber(page[66])
    loaded = loaded + 32
  end

  local function ms_of(front)
    return tonumber(string.match(front.entries[front.at][1], '^%d+'))
  end

  -- The front with the oldest next entry. A topic not opened yet may be older: its score in `behind` says at least when.
  local function oldest_front()
    local oldest, order
    for i = 1, #fronts + #topics do
      if not fronts[i] then
        if oldest and ms_of(oldest) < topics[1].ms then break end
        fronts[i] = open_front(queue, table.remove(topics, 1).topic, wanted - #out.refs)
      end
      local front = fronts[i]
      if not front.entries[front.at] and not front.done then refill_front(front, wanted - #out.refs) end
      local entry = front.entries[front.at]
      if entry and #fronts + #topics == 1 then return front end
      if entry and front.head ~= entry then front.head, front.order = entry, order_of(entry[1]) end
      if entry and (not order or front.order < order) then oldest, order = front, front.order end
    end
    return oldest
  end

  local function close_front(front, alone)
    save_cursor(queue, front)
    local next_entry = front.entries[front.at]
    if front.done and not next_entry then
      call('ZREM', K.behind(queue.name), front.topic)
    elseif not alone then
      -- A bound that is too low is right too; it is raised where it saves looking at this topic.
      call('ZADD', K.behind(queue.name), string.match((next_entry or {front.id})[1], '^%d+'), front.topic)
    end
  end

  load_topics()
  local ahead = #topics > 0 and call('HLEN', K.ahead(queue.name))
  while #out.refs < wanted and budget.bytes < V.bytes do
    local front = oldest_front()
    if front and further and ms_of(front) == further then
      load_topics()
    elseif not front or further and ms_of(front) > further then
      break
    else
      local alone = #fronts == 1 and #topics == 0 and not further
      ahead = take_from_front(queue, front, alone and math.min(wanted - #out.refs, #front.entries) or 1, out, budget, ahead)
    end
  end
  out.exhausted = not further and #topics == 0
  for _, front in ipairs(fronts) do
    if not front.done or front.entries[front.at] then out.exhausted = false end
    close_front(front, #fronts == 1 and #topics == 0)
  end
  return further
end
