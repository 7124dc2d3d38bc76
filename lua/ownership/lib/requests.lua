--- requests: what instances say to each other of a queue, as entries of the stream `requests`, which links carry.
--- @include request_shares, incarnations
-- Three kinds. Who has room asks: `shares`, owners and how much of each; `wishes`, a line a filter: its name, its room, its tree;
-- `place`, '' or the place of an offer, to go on behind it. An owner offers: `to` whom, `offered`, the share, `bookmarks`, `place`.
-- Who asked names what it takes: `rooms` as `shares`, `bookmarks`.

local function write_request(queue, ...)
  call('XADD', K.requests(), 'MAXLEN', '~', V.requests, '*', F.queues, queue.name, F.owner, names_of_instance().origin, ...)
end

-- With more filters than one request has, they take turns.
local function wishes_text(plan, wishes, now)
  local lines, first = {}, #wishes > V.wishes and math.floor(now / V.ask_again) or 0
  for i = 1, math.min(#wishes, V.wishes) do
    local wish = wishes[(first + i - 1) % #wishes + 1]
    lines[i] = string.format('%s %d %s', wish.filter, wish.room, plan and plan.trees[wish.filter] or '')
  end
  return table.concat(lines, '\n')
end

local function write_wishes(queue, plan, wishes, shares, place, now)
  write_request(queue, F.shares, shares, F.heard, heard_journals(queue), F.wishes, wishes_text(plan, wishes, now), F.place, place)
end

local function read_wishes(text)
  local wishes = {}
  for filter, room, tree in string.gmatch(text, '(%S+) (%d+) ([^\n]*)') do
    wishes[#wishes + 1] = {filter = filter, room = tonumber(room), tree = tree}
  end
  return wishes
end
