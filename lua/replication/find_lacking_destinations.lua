--- find_lacking_destinations: which sync destinations do not have everything up to a mark, or up to places in streams, yet.
--- ARGV after, wanted...
--- GIVES their names
--- FLAGS no-writes, allow-oom
--- @include fail, unsent_entries
-- after: the mark, '' without one. wanted: `log <topic>` or `journal <queue>` and the ID that is waited for, '' where that is
-- the mark's to say, in turn: a destination that does not carry any of them is not waited for; without any, everything is
-- waited for. A queue's name stands for its topic. What a link carries is known of the catalog that it saw last.
local found, version = {}, call('HGET', K.instance(), F.catalog)
local names = {}
for i = wanted_from, #ARGV, 2 do
  local topic = string.match(ARGV[i], '^log (.*)$')
  local target = topic and string.match(call('HGET', K.routes(), topic) or '', '^>(.*)$')
  names[#names + 1] = target and 'log ' .. target or ARGV[i]
end

local function has_all(destination)
  if after == '' then return false end
  local marked = call('HGET', K.sent(destination), F.marked)
  return marked and order_of(marked) >= order_of(after)
end

local function lacks(destination)
  local known = call('HMGET', K.sent(destination), F.catalog, F.peer, unpack(names))
  for i, name in ipairs(names) do
    local place, upto = known[i + 2], ARGV[wanted_from + 2 * i - 1]
    local is_there = place and upto ~= '' and order_of(place) >= order_of(upto)
    if (place or known[1] ~= version) and not is_there and first_unsent(name, place or '0-0', known[2] or '') then return true end
  end
  return false
end

local function lacks_any(destination)
  local known = call('HMGET', K.sent(destination), F.catalog, F.peer)
  if known[1] ~= version then return true end
  local sent = call('HGETALL', K.sent(destination))
  for i = 1, #sent, 2 do
    if is_stream(sent[i]) and first_unsent(sent[i], sent[i + 1], known[2] or '') then return true end
  end
  return false
end

local states = call('HGETALL', K.sync())
for i = 1, #states, 2 do
  local name = states[i]
  if states[i + 1] == '' and not has_all(name) and (names[1] and lacks or lacks_any)(name) then found[#found + 1] = name end
end
return found
