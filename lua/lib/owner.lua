--- owner: which instance may deliver a message of a queue that several instances have. Included as `owner()`.
--- @include ref, source
-- A queue's `owner`: `*`, the origin of each message; an instance's name; nil, everybody delivers what is recorded there.

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
local function is_former(origin)
  local known = names_of_instance()
  return origin ~= known.origin and string.match(origin, '^(.*)%.') == known.name
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
  if not is_former(origin) or origin_at(id) ~= origin then return false end
  local entry = call('XRANGE', key, id, id)[1]
  return entry ~= nil and not source_of(entry[2])
end

-- `<origin>~<id>` of a message: of several bookmarks the one that counts.
local function counting_of(topic, id, fields)
  if own_names.doubled == nil then own_names.doubled = call('EXISTS', K.counting()) == 1 end
  local lowest = own_names.doubled and call('HGET', K.counting(), topic .. ' ' .. id)
  return lowest or source_of(fields) or origin_at(id) .. '~' .. id
end

-- Who owns it, and since which transfer. An origin, or the name of an instance where that is the queue's default.
local function owner_of(queue, ref, fields)
  local owner, epoch = string.match(call('HGET', K.owners(queue.name), ref) or '', '^(%S+) (%d+)')
  if owner then return owner, tonumber(epoch) end
  if queue.owner ~= V.everywhere then return queue.owner, 0 end
  local topic, id = parse_ref(ref)
  return string.match(counting_of(topic, id, fields), '^[^~]*'), 0
end

local function is_own(owner)
  local known = names_of_instance()
  return owner == known.origin or owner == known.name
end

local function is_owned_here(queue, ref, fields)
  return is_own((owner_of(queue, ref, fields)))
end
