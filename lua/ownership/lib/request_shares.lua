--- request_shares: for how many messages of a queue somebody here is free, and how that is divided among the owners that are asked.
--- @include free_subscriptions, judging_plan, sort_step, received_positions, incarnations, message_owner(), lease_runs

local function waiting_here(queue)
  return call('ZCARD', K.ready(queue.name)) + (queue.sorted and call('ZCARD', K.sorted(queue.name, V.none)) or 0)
end

-- What has its place here goes first, where a dispatch was cut short. Returns the room, and the wishes of who has it: filter, room.
local function room_here(queue, plan)
  local names, room, wishes = {V.none, unpack(plan and plan.filters or {})}, 0, {}
  for _, name in ipairs(names) do
    local open = open_room(queue.name, name, V.batch, nil)
    if open.list[1] then room, wishes[#wishes + 1] = room + open.total, {filter = name, room = math.min(open.total, V.batch)} end
  end
  if room > 0 and call('ZSCORE', K.due(), 'dispatch ' .. queue.name) then room = room - waiting_here(queue) end
  return math.min(room, V.batch), wishes
end

-- Of a queue that is held, or paused, nobody here may be given more.
local function may_ask(queue)
  return queue.owner and not queue.recovering and queue.backlog ~= V.no_room and queue.topic ~= V.nowhere
end

-- Who settles what is granted before more can come would else wait most of the time: as many more as are settled, by the pace of those
-- that came last, until the next grant comes, and at most twice as many as those.
local function settling_pace(queue, answered, now)
  local since, count, takes = string.match(answered or '', '^%S+ %d+ (%d+) (%d+) (%d+)$')
  if not since then return 0 end
  local held = number_leased(queue.name) + waiting_here(queue)
  local settled = math.max(count - held, 0)
  return math.min(2 * settled, math.floor(settled * takes / math.max(now - since, 1)))
end

-- wishes: of those who are free.
local function is_wanted(plan, wishes, ref, fields, now)
  local document = nil
  for _, wish in ipairs(wishes) do
    if wish.filter == V.none then return true end
    document = document or document_of(plan, ref, fields, 0, now)
    charge_work(plan, document, 1)
    if judge(plan, wish.filter, document) then return true end
  end
  return false
end

-- Owners of messages at places all over those that others own; the places are others each time.
local function owners_of_some(queue, ms)
  local number, owners, known = call('ZCARD', K.remote(queue.name)), {}, {}
  local looks, phase = math.min(number, V.owners_looked), math.floor(ms / V.ask_again) % 16 / 16
  for i = 0, looks - 1 do
    local rank = i == 0 and 0 or math.floor((i + phase) * number / looks)
    local ref = call('ZRANGE', K.remote(queue.name), rank, rank)[1]
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    local name = entry and message_owner().owner_of(queue, ref, entry[2])
    if name and not known[name] then owners[#owners + 1], known[name] = name, true end
  end
  return owners, known
end

-- One of the others that messages of a topic came from, each in its turn: it may own a few that no look has found. What an
-- incarnation owned that is over, its instance owns.
local function another_owner(topic, known, ms)
  local others = {}
  for _, origin in ipairs(call('SMEMBERS', K.origins(topic))) do
    local is_over = received_of('log ' .. topic, origin) == V.last_id
    local name = is_over and string.match(origin, '^(.*)%.') or origin
    if not (known[origin] or known[name] or message_owner().is_own_name(origin)) then others[#others + 1] = name end
  end
  table.sort(others)
  return others[math.floor(ms / V.ask_again) % math.max(#others, 1) + 1]
end

-- Whom to ask for how many: `<owner> <number>`, parted by spaces. Where there is less room than owners, each has its turn.
local function shares_of_owners(queue, oldest, room, ms)
  local owners, known = owners_of_some(queue, ms)
  local turn, shares = math.floor(ms / V.ask_again), {}
  local another = another_owner((parse_ref(oldest)), known, ms)
  if another and (room > 1 or not owners[1] or turn % 4 == 0) then shares[1], room = another .. ' 1', room - 1 end
  table.sort(owners)
  for i = 1, #owners do
    local share = math.ceil(room / (#owners - i + 1))
    if share > 0 then shares[#shares + 1] = owners[(turn + i - 1) % #owners + 1] .. ' ' .. share end
    room = room - share
  end
  return table.concat(shares, ' ')
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
