--- find_oldest_unacknowledged: since when a destination has not acknowledged the oldest message that it is sent, or is to be.
--- ARGV now, destination, names...
--- GIVES {ms of that message, or '' where it has acknowledged everything; ms now}
--- FLAGS no-writes, allow-oom
--- @include clock, fail, unsent_entries
-- names: `log <topic>` of what it is to be sent, also where no link has said so yet.
local oldest, known = nil, call('HGETALL', K.sent(destination))
local sent = {}
for i = 1, #known, 2 do sent[known[i]] = known[i + 1] end
local version = call('HGET', K.instance(), F.catalog)

local function look_at_stream(stream, place)
  local id = first_unsent(stream, place, sent[F.peer] or '')
  local ms = id and tonumber(string.match(id, '^%d+'))
  if ms and (not oldest or ms < oldest) then oldest = ms end
end

for i = 1, #known, 2 do
  if is_stream(known[i]) then look_at_stream(known[i], known[i + 1]) end
end
if sent[F.catalog] ~= version then
  for i = names_from, #ARGV do
    if not sent[ARGV[i]] then look_at_stream(ARGV[i], '0-0') end
  end
end
return {oldest and string.format('%.0f', oldest) or '', string.format('%.0f', clock_ms(now))}
