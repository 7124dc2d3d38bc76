--- doubled: a message that its publisher sent to two instances, since it failed over: one entry here, known by both bookmarks.
-- Included as `doubled()`.
--- @include copies, duplicates, owner(), yielding

local known_publishers = {}

local function publisher_known(publisher)
  if known_publishers[publisher] == nil then
    local last, id, topic = string.match(call('HGET', K.publishers(), publisher) or '', '^(%d+) (%S+) (.*)$')
    known_publishers[publisher] = last and {last = tonumber(last), id = id, topic = topic} or false
  end
  return known_publishers[publisher]
end

local function publication_of(run, i)
  local at = run.first + i * (run.width + 1)
  local publisher, sequence = place_of_field(run, F.publisher), place_of_field(run, F.sequence)
  return ARGV[at + publisher], sequence and tonumber(ARGV[at + sequence])
end

-- By publisher the least and the highest number among a run's new entries that may be here.
local function ranges_of(run, missing)
  local ranges, some = {}, false
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local known = number and publisher_known(publisher)
    if known and number <= known.last then
      local range = ranges[publisher] or {number, number}
      ranges[publisher], some = {math.min(range[1], number), math.max(range[2], number)}, true
    end
  end
  return some and ranges
end

-- Its ID here and its source, if it came from another origin than this run's: one origin never records a number twice.
local function double_of(topic, origin, id)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  local source = entry and (owner().source_of(entry[2]) or owner().names_of_instance().origin .. '~' .. id)
  return source and string.match(source, '^[^~]*') ~= origin and source
end

-- What is not here under any bookmark.
local function set_doubled_apart(topic, routed, run, missing)
  local ranges = ranges_of(run, missing)
  if not ranges then return missing end
  local found, left, pairs_here = {}, {}, {}
  for publisher, range in pairs(ranges) do
    local known = publisher_known(publisher)
    found[publisher] = find_sequences(topic, known.topic == topic and known.id or '+', publisher, range[1], range[2])
  end
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local here = found[publisher] and found[publisher][number]
    local source = here and double_of(topic, run.origin, here)
    if source then
      local id = id_of_entry(run, i)
      pairs_here[#pairs_here + 1], pairs_here[#pairs_here + 2] = id, here
      -- The lower ID's origin owns it wherever both are known.
      if order_of(id) < order_of(string.match(source, '[^~]*$')) then yield_everywhere(topic, routed, here, run.origin) end
    else
      left[#left + 1] = i
    end
  end
  note_copies(topic, run.origin, pairs_here)
  return left
end

-- So that a publisher that fails over to this instance hears how far it was.
local function remember_publishers(topic, run, missing, known)
  local last = {}
  for k, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local before = publisher_known(publisher)
    if number and (not before or number > before.last) and not (last[publisher] and last[publisher].number > number) then
      last[publisher] = {number = number, id = known[2 * k]}
    end
  end
  for publisher, found in pairs(last) do
    call('HSET', K.publishers(), publisher, string.format('%.0f', found.number) .. ' ' .. found.id .. ' ' .. topic)
    known_publishers[publisher] = nil
  end
end
