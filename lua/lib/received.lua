--- received: up to where everything of an origin's stream is here, and through which filters it came.
--- @include fail, ref

-- stream: `log <topic>` or `journal <queue>`. '0-0' and nil where nothing came yet.
local function received_of(stream, origin)
  local id, filter = string.match(call('HGET', K.received(), stream .. '@' .. origin) or '', '^(%S+) (%S+)$')
  return id or '0-0', filter
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
