--- message_owner: which instance may deliver a message of a queue that several instances have. Included as `message_owner()`.
--- @include ref, incarnations, source
-- A queue's `owner`: `*`, the origin of each message; an instance's name; nil, everybody delivers what is recorded there.

-- Of one that is included anew: a double that this call notes is seen.
local seen_doubles = {}

-- `<origin>~<id>` of a message: of several bookmarks the one that counts.
local function counting_source(topic, id, fields)
  if seen_doubles.any == nil then seen_doubles.any = call('EXISTS', K.counting()) == 1 end
  local lowest = seen_doubles.any and call('HGET', K.counting(), topic .. ' ' .. id)
  return lowest or source_of(fields) or origin_at(id) .. '~' .. id
end

-- Who owns it, and since which transfer. An origin, or the name of an instance where that is the queue's default.
local function owner_of(queue, ref, fields)
  local owner, epoch = string.match(call('HGET', K.owners(queue.name), ref) or '', '^(%S+) (%d+)')
  if owner then return owner, tonumber(epoch) end
  if queue.owner ~= V.everywhere then return queue.owner, 0 end
  local topic, id = parse_ref(ref)
  return string.match(counting_source(topic, id, fields), '^[^~]*'), 0
end

-- An origin, or the name of an instance. What a former incarnation owned, this one owns.
local function is_own_name(owner)
  local known = names_of_instance()
  return owner == known.origin or owner == known.name or is_former_incarnation(owner)
end

local function is_owned_here(queue, ref, fields)
  return is_own_name((owner_of(queue, ref, fields)))
end
