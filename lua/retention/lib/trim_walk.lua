--- trim_walk: the place of a trimming walk over a stream, and removing what it found closed.
--- @include ref

-- A walk goes from the head to where something is needed for sure (an unread message, a hold, the policy's end), and goes
-- on from there. What it left standing on its way is looked at again by another walk, which begins after a rest that grows
-- with their number: a hundredth of the server's time at most. Everything is proved in the call that removes it, so this
-- is only about where to look: lost, or of another log, it does no harm.
local function open_walk(name, ms)
  local value = call('HGET', K.retention(), name) or ''
  local at, kept, rested, front = string.match(value, '^(%S+) (%d+) (%d+) (%S+)$')
  if not at then return {name = name, at = '0-0', kept = 0, rested = 0, front = '0-0'} end
  local walk = {name = name, at = at, kept = tonumber(kept), rested = tonumber(rested), front = front}
  local rest = math.max(1000, walk.kept / 5)
  if walk.rested > 0 and walk.kept > 0 and (ms >= walk.rested + rest or ms < walk.rested) then
    walk.at, walk.kept, walk.rested = '0-0', 0, 0
  end
  return walk
end

local function save_walk(walk, ended, ms)
  if order_of(walk.at) > order_of(walk.front) then walk.front = walk.at end
  if ended and walk.rested == 0 then walk.rested = ms end
  call('HSET', K.retention(), walk.name, walk.at .. ' ' .. walk.kept .. ' ' .. string.format('%.0f', walk.rested)
    .. ' ' .. walk.front)
end

-- Readers that begin before it miss something. A walk may remove what an earlier one left standing.
local function note_removed(topic, id)
  local field = 'removed ' .. topic
  local known = call('HGET', K.retention(), field)
  if not known or order_of(known) < order_of(id) then call('HSET', K.retention(), field, id) end
end

-- ids: of entries in turn with nothing between them, not none; needed: index -> who needs it. With nothing before them, the first
-- closed ones are the stream's head: trimming gives whole nodes back and costs least. What is behind a needed one is
-- deleted by its ID; a node whose entries are all deleted is given back, too. Returns what was removed.
local function remove_unneeded(stream, ids, needed)
  local first, head, holes, gone = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1], 0, {}, {}
  if first and first[1] == ids[1] then
    while head < #ids and not needed[head + 1] do head = head + 1 end
  end
  for i = 1, #ids do
    if not needed[i] then gone[#gone + 1] = ids[i] end
    if not needed[i] and i > head then holes[#holes + 1] = ids[i] end
  end
  if #holes > 0 then call('XDEL', stream, unpack(holes)) end
  -- By number, since no ID need lie between the last closed one and the next entry.
  if head > 0 then call('XTRIM', stream, 'MAXLEN', '=', call('XLEN', stream) - head) end
  return gone
end
