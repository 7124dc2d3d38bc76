--- message_life: how long a message may wait, and for whom it is: what its entry says and what its queue says.
--- @include message_owner()

-- Whether an entry of ours says more than its body, headers and publisher, or is a copy of another instance's.
local function has_delivery_options(fields)
  if fields[#fields - 1] == F.path then return true end
  if fields[1] ~= F.body then return false end
  for i = 3, #fields, 2 do
    local name = fields[i]
    if name == F.expiration or name == F.due or name == F.addressed then return true end
  end
  return false
end

-- What an entry of ours says: its own life and the time that it is due, ms, and the one queue that it is for.
local function delivery_options_of(fields)
  if #fields == 2 or fields[1] ~= F.body then return nil, nil, nil end
  local own, due, addressed = nil, nil, nil
  for i = 3, #fields, 2 do
    local name = fields[i]
    if name == F.expiration then
      own = tonumber(fields[i + 1])
    elseif name == F.due then
      due = tonumber(fields[i + 1])
    elseif name == F.addressed then
      addressed = fields[i + 1]
    end
  end
  return own, due, addressed
end

-- ms; nil without a limit. Where one of the two is not given, the other counts.
local function life_in(queue, own)
  local life = queue.life > 0 and queue.life or nil
  if queue.model == 1 or not own then return life end
  if queue.model == 0 or not life then return own end
  return queue.model == 2 and math.max(own, life) or queue.model == 3 and math.min(own, life)
end

-- ms when the life of a message begins, of the ms of its entry: when it was published, or later, when it was due.
local function begin_of_life(ms, due)
  return math.max(tonumber(ms), due or 0)
end

-- ms when its life is over; nil: never.
local function end_of_life(queue, ref, own, due)
  local life = life_in(queue, own)
  return life and life + begin_of_life(string.match(ref, '^%l(%d+)'), due)
end

-- Whether another instance may deliver it, and this one not. Of what is recorded by the side the owner is the origin.
local function is_remote(queue, ref, fields)
  if not queue.owner then return false end
  local is_plain = queue.owner == V.everywhere and fields[#fields - 1] ~= F.path
  if is_plain and call('EXISTS', K.owners(queue.name), K.counting()) == 0 then return false end
  queue.owners = queue.owners or message_owner()
  return not queue.owners.is_owned_here(queue, ref, fields)
end

-- What is to be done with a message before anybody gets it; nil: nothing, it may be delivered. The second value is when it
-- is due, or when its life is over. was_read: its queue read it before.
local function fate_of(queue, ref, fields, was_read, now)
  local own, due, addressed = delivery_options_of(fields)
  if addressed and addressed ~= queue.name then return 'elsewhere', nil end
  if not was_read and is_remote(queue, ref, fields) then return V.remote, nil end
  local ends = end_of_life(queue, ref, own, due)
  if due and due > now and not was_read then return V.scheduled, due, ends end
  if ends and ends <= now then return V.expired, nil end
  return nil, ends
end
