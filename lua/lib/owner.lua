--- owner: which instance may deliver a message of a queue that several instances have. Included as `owner()`.
--- @include ref, source
-- A queue's `owner`: `*`, the origin of each message; an instance's name; nil, everybody delivers what is recorded there.

local own_names = {}

local function names_of_instance()
  if not own_names.origin then own_names.name, own_names.origin = unpack(call('HMGET', K.instance(), F.name, F.origin)) end
  return own_names
end

-- `<origin>~<id>` of a message: of several bookmarks the one that counts.
local function counting_of(topic, id, fields)
  if own_names.doubled == nil then own_names.doubled = call('EXISTS', K.counting()) == 1 end
  local lowest = own_names.doubled and call('HGET', K.counting(), topic .. ' ' .. id)
  return lowest or source_of(fields) or names_of_instance().origin .. '~' .. id
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
