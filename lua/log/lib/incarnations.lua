--- incarnations: who this instance is, and who it was before it began a new incarnation: whose an entry without a source is.
--- @include ref, source

local own_names = {}

-- former: orders of last IDs, and origins, in turn.
local function names_of_instance()
  if not own_names.origin then
    local former
    own_names.name, own_names.origin, former = unpack(call('HMGET', K.instance(), F.name, F.origin, F.former))
    own_names.former = {}
    for id, origin in string.gmatch(former or '', '(%S+) (%S+)') do
      table.insert(own_names.former, order_of(id))
      table.insert(own_names.former, origin)
    end
  end
  return own_names
end

-- An incarnation of this instance that is over, whether or not anything of it is left here.
local function is_former_incarnation(origin)
  local known = names_of_instance()
  return origin ~= known.origin and string.match(origin, '^(.*)%.') == known.name
end

-- Whether this incarnation knows of that one.
local function is_known_incarnation(origin)
  for i = 2, #names_of_instance().former, 2 do
    if own_names.former[i] == origin then return true end
  end
  return false
end

-- Who recorded what has no source: each former incarnation up to its last ID, then this one.
local function origin_at(id)
  local known = names_of_instance()
  local order = known.former[1] and order_of(id)
  for i = 1, #known.former, 2 do
    if order <= known.former[i] then return known.former[i + 1] end
  end
  return known.origin
end

-- Whether a former incarnation recorded it here, under its own ID.
local function is_recorded_here(key, origin, id)
  if not is_former_incarnation(origin) or origin_at(id) ~= origin then return false end
  local entry = call('XRANGE', key, id, id)[1]
  return entry ~= nil and not source_of(entry[2])
end
