--- double_publications: a message that its publisher sent to two instances, since it failed over: one entry here, known by both bookmarks.
-- Included as `double_publications()`.
--- @include copies, publication_search, sequence_ranges, entry_ids, source, incarnations, transfer_voiding, message_owner()

local loaded_publishers = {}

local function publication_of(run, i)
  local at = run.first + i * (run.width + 1)
  local publisher, sequence = place_of_field(run, F.publisher), place_of_field(run, F.sequence)
  return ARGV[at + publisher], sequence and tonumber(ARGV[at + sequence])
end

local function load_publisher(publisher)
  if not loaded_publishers[publisher] then
    local known = {last = tonumber(string.match(call('HGET', K.publishers(), publisher) or '', '^%d+'))}
    known.ranges, known.opened = read_ranges(publisher)
    -- It logged on before anything was replicated here, and left out nothing.
    if not known.opened and known.last and call('HEXISTS', K.sessions(), publisher) == 1 then known.opened = '1' end
    known.first, known.own_last = session_range(publisher, known.opened)
    loaded_publishers[publisher] = known
  end
  return loaded_publishers[publisher]
end

-- Whether a number is recorded: true or false; nil where only the log can say: some publish without a logon.
local function is_sequence_recorded(known, number)
  if known.first and number >= known.first and number <= known.own_last then return true end
  for _, range in ipairs(known.ranges) do
    if number >= range[1] and number <= range[2] then return true end
  end
  if not known.last or number > known.last then return false end
  return nil
end

-- By name where the entries are whose numbers are, or may be, recorded; nil where the next call has to go on looking.
local function find_doubles(topic, run, missing)
  local sure, maybe = {}, {}
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local recorded = number and is_sequence_recorded(load_publisher(publisher), number)
    if recorded then sure[#sure + 1] = publication_name(publisher, number) end
    if number and recorded == nil then maybe[#maybe + 1] = publication_name(publisher, number) end
  end
  local found = sure[1] and find_recorded(topic, run.origin, sure) or not sure[1] and {} or nil
  if found and maybe[1] then
    for name, id in pairs(find_publications(topic, maybe)) do found[name] = id end
  end
  return found
end

-- The message under one more bookmark, which counts if it is the lowest.
local function note_second_bookmark(topic, routed, run, here, id, now)
  local source = run.origin .. '~' .. id
  local entry = call('XRANGE', K.log(topic), here, here)[1]
  local counting = message_owner().counting_source(topic, here, entry[2])
  local known, known_id = string.match(counting, '^([^~]*)~(.*)$')
  note_copies(topic, run.origin, {id, here})
  call('XADD', K.same(topic), next_id(now), F.here, here, F.source, source, F.path, run.path)
  local order, known_order = order_of(id), order_of(known_id)
  if order < known_order or order == known_order and run.origin < known then
    call('HSET', K.counting(), topic .. ' ' .. here, source)
    void_transfers(topic, routed, here, now)
  end
end

-- A run's new entries in parts, in their order: what is recorded, and, with `here`, a message that is here under another bookmark.
-- What comes of both has to be passed on in that order. One origin never records a number twice; what was trimmed since is settled.
-- Nil where the next call has to go on looking.
local function split_doubles(topic, run, missing)
  local found, parts, last = find_doubles(topic, run, missing), {{}}, nil
  if not found then return nil end
  if not next(found) then return {missing} end
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local here = number and found[publication_name(publisher, number)]
    local entry = here and call('XRANGE', K.log(topic), here, here)[1]
    local origin = entry and string.match(source_of(entry[2]) or origin_at(here), '^[^~]*')
    if origin and origin ~= run.origin then
      parts[#parts + 1], parts[#parts + 2], last = {i, here = here}, {}, here
    elseif here or not number or not is_sequence_recorded(load_publisher(publisher), number) then
      table.insert(parts[#parts], i)
    end
  end
  if last then end_search(topic, run.origin, last) end
  return parts
end

-- So that a publisher that fails over to this instance hears how far it was, and what is sent twice is known.
local function remember_publishers(topic, run, missing, known)
  local last = {}
  for k, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    if number then
      local before = load_publisher(publisher)
      before.ranges, before.is_new = add_range(before.ranges, number, number), true
      if number > (before.last or -1) then last[publisher], before.last = {number, known[2 * k]}, number end
    end
  end
  for publisher, found in pairs(last) do
    local before = load_publisher(publisher)
    -- From here on the publisher's last number is not that of its session here.
    if before.first and not string.find(before.opened, ' ', 1, true) then
      call('HSET', K.sequences(), publisher .. ' open', string.format('%.0f %.0f', before.first, before.own_last))
    end
    call('HSET', K.publishers(), publisher, string.format('%.0f', found[1]) .. ' ' .. found[2] .. ' ' .. topic)
  end
  for publisher, before in pairs(loaded_publishers) do
    if before.is_new then save_ranges(publisher, before.ranges) end
  end
  loaded_publishers = {}
end
