--- lacking: which sync destinations do not have everything up to a mark yet.
--- ARGV after, names...
--- GIVES their names
--- FLAGS no-writes, allow-oom
--- @include fail, ref
-- names: `log <topic>` and `journal <queue>` of what is waited for: a destination that does not carry any of them is not waited
-- for; without names all are. What a link carries is known of the catalog that it saw last.
local found, version = {}, call('HGET', K.instance(), F.catalog)

local function may_carry(destination)
  if names_from > #ARGV then return true end
  local known = call('HMGET', K.sent(destination), F.catalog, unpack(ARGV, names_from))
  if known[1] ~= version then return true end
  for i = 2, #known do
    if known[i] then return true end
  end
  return false
end

local states = call('HGETALL', K.sync())
for i = 1, #states, 2 do
  local marked = states[i + 1] == '' and (call('HGET', K.sent(states[i]), F.marked) or '0-0')
  if marked and order_of(marked) < order_of(after) and may_carry(states[i]) then found[#found + 1] = states[i] end
end
return found
