--- owner: which instance may deliver a message of a queue that several instances have. Included as `owner()`.
-- A queue's `owner`: `*`, the origin of each message; an instance's name; nil, everybody delivers what is recorded there.

local own_names = {}

local function names_of_instance()
  if not own_names.origin then own_names.name, own_names.origin = unpack(call('HMGET', K.instance(), F.name, F.origin)) end
  return own_names
end

-- `<origin>~<id>` of a copy; nil of what was published here.
local function source_of(fields)
  for i = #fields - 1, 1, -2 do
    if fields[i] == F.source then return fields[i + 1] end
  end
end

-- Who owns it, and since which transfer. An origin, or the name of an instance where that is the queue's default.
local function owner_of(queue, ref, fields)
  local owner, epoch = string.match(call('HGET', K.owners(queue.name), ref) or '', '^(%S+) (%d+)$')
  if owner then return owner, tonumber(epoch) end
  if queue.owner ~= V.everywhere then return queue.owner, 0 end
  local source = source_of(fields)
  return source and string.match(source, '^[^~]*') or names_of_instance().origin, 0
end

local function is_own(owner)
  local known = names_of_instance()
  return owner == known.origin or owner == known.name
end

local function is_owned_here(queue, ref, fields)
  return is_own((owner_of(queue, ref, fields)))
end
