--- request_shares: for how many messages of a queue somebody here is free, and how that is divided among the owners that are asked.
--- @include free_subscriptions, judging_plan, sort_step, received_positions

local function waiting_here(queue)
  return call('ZCARD', K.ready(queue.name)) + (queue.sorted and call('ZCARD', K.sorted(queue.name, V.none)) or 0)
end

-- What has its place here goes first, where a dispatch was cut short. Returns the room, and the filters of who has it.
local function room_here(queue, plan)
  local names, room, filters = {V.none, unpack(plan and plan.filters or {})}, 0, {}
  for _, name in ipairs(names) do
    local open = open_room(queue.name, name, V.batch, nil)
    if open.list[1] then room, filters[#filters + 1] = room + open.total, name end
  end
  if room > 0 and call('ZSCORE', K.due(), 'dispatch ' .. queue.name) then room = room - waiting_here(queue) end
  return math.min(room, V.batch), filters
end

-- Who settles what is granted before more can come would else wait most of the time: as many more as are settled, by the pace of those
-- that came last, until the next grant comes, and at most twice as many as those.
local function settling_pace(queue, answered, now)
  local since, count, takes = string.match(answered or '', '^%S+ %d+ (%d+) (%d+) (%d+)$')
  if not since then return 0 end
  local held = math.max(call('HLEN', K.leases(queue.name)) - 1, 0) + waiting_here(queue)
  local settled = math.max(count - held, 0)
  return math.min(2 * settled, math.floor(settled * takes / math.max(now - since, 1)))
end

-- filters: those that somebody free has.
local function is_wanted(plan, filters, ref, fields, now)
  for _, name in ipairs(filters) do
    if name == V.none then return true end
    local document = document_of(plan, ref, fields, 0, now)
    if judge(plan, name, document) then return true end
  end
  return false
end

-- owners: those of the messages that are named. Where there is less room than owners, each has its second.
local function share_of_each(owners, room, ms)
  local shares, first = {}, math.floor(ms / V.ask_again) % #owners
  table.sort(owners)
  for i = 1, #owners do
    local share = math.ceil(room / (#owners - i + 1))
    shares[owners[(first + i - 1) % #owners + 1]], room = share, room - share
  end
  return shares
end

-- Up to where the journals of others are here: `<origin>~<ID>`, parted by spaces.
local function heard_journals(queue)
  local heard, head = {}, 'journal ' .. queue.name .. '@'
  for _, field in ipairs(call('HKEYS', K.received())) do
    if string.sub(field, 1, #head) == head then
      local origin = string.sub(field, #head + 1)
      heard[#heard + 1] = origin .. '~' .. received_of('journal ' .. queue.name, origin)
    end
  end
  return table.concat(heard, ' ')
end
