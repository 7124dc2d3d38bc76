--- foreign_bookmarks: messages that another instance names by their bookmarks.
--- @include copies, received_positions, incarnations, message_owner()

-- `<topic>~<origin>~<id>`; the ID here, nil where it is not here; then topic, origin and ID there.
local function find_bookmark(bookmark, own)
  local topic, origin, id = string.match(bookmark, '^([^~]+)~([^~]+)~([^~]+)$')
  if origin == own then return id, topic, origin, id end
  if is_recorded_here(K.log(topic), origin, id) then return id, topic, origin, id end
  return copy_of(topic, origin, id), topic, origin, id
end

-- Whether one that is not here is still to come: else a filter kept it out, or it was trimmed.
local function is_to_come(topic, origin, id, own)
  return origin ~= own and order_of(id) > order_of((received_of('log ' .. topic, origin)))
end

-- The bookmark that counts of a message that is here.
local function counting_bookmark(topic, here)
  local entry = call('XRANGE', K.log(topic), here, here)[1]
  return topic .. '~' .. message_owner().counting_source(topic, here, entry and entry[2] or {})
end

local function is_counting_bookmark(topic, here, source)
  return counting_bookmark(topic, here) == topic .. '~' .. source
end
