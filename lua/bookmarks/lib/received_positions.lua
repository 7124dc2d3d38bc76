--- received_positions: up to where everything of an origin's stream is here, and through which filters it came.
--- @include fail, ref, incarnations

-- stream: `log <topic>` or `journal <queue>`. '0-0' and nil where nothing came yet.
local function received_of(stream, origin)
  local id, filter = string.match(call('HGET', K.received(), stream .. '@' .. origin) or '', '^(%S+) (%S+)$')
  return id or '0-0', filter
end

local open_hops = {}

-- What a link read of an incarnation that is over comes too late; and what a former one of this instance had comes too early
-- where this one was not told of that (`begin_recovery`). The link is to be opened again.
local function check_incarnations(path, origin)
  local hop = string.match(path, '^[^/]*')
  if open_hops[hop] == nil then open_hops[hop] = call('SISMEMBER', K.closed(), hop) == 0 end
  if not open_hops[hop] then fail(E.INCARNATION_OVER, {origin = hop}) end
  if is_former_incarnation(origin) and not is_known_incarnation(origin) then fail(E.INCARNATION_OVER, {origin = origin}) end
end

-- What begins above what is here was held up while this server fell back: it would leave a hole for ever.
local function check_start(stream, origin, start, up_to)
  if order_of(start) > order_of(up_to) then fail(E.GAP, {stream = stream, origin = origin, start = start, received = up_to}) end
end

-- A stream under another filter would leave a hole that nobody sees.
local function check_filter(stream, origin, filter)
  local _, known = received_of(stream, origin)
  if known and known ~= filter then
    fail(E.OTHER_FILTER, {stream = stream, origin = origin, known = known, given = filter})
  end
end

local function note_received(stream, origin, id, filter)
  call('HSET', K.received(), stream .. '@' .. origin, id .. ' ' .. filter)
end
