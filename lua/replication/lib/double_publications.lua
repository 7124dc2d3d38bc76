--- double_publications: a message that its publisher sent to two instances, since it failed over: one entry here, known by both bookmarks.
-- Included as `double_publications()`.
--- @include copies, duplicates, sequence_ranges, entry_ids, source, incarnations, transfer_voiding, message_owner()

local loaded_publishers = {}

local function publication_of(run, i)
  local at = run.first + i * (run.width + 1)
  local publisher, sequence = place_of_field(run, F.publisher), place_of_field(run, F.sequence)
  return ARGV[at + publisher], sequence and tonumber(ARGV[at + sequence])
end

local function load_publisher(publisher)
  if not loaded_publishers[publisher] then
    local last, id, topic = string.match(call('HGET', K.publishers(), publisher) or '', '^(%d+) (%S+) (.*)$')
    local known = {last = tonumber(last), id = id, topic = topic, own = tonumber(last)}
    known.ranges, known.opened = read_ranges(publisher)
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

-- By publisher where the entries are whose numbers are, or may be, recorded.
local function find_doubles(topic, run, missing)
  local wanted, found = {}, {}
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    if number and is_sequence_recorded(load_publisher(publisher), number) ~= false then
      local range = wanted[publisher] or {number, number}
      wanted[publisher] = {math.min(range[1], number), math.max(range[2], number)}
    end
  end
  for publisher, range in pairs(wanted) do
    local known = load_publisher(publisher)
    found[publisher] = find_sequences(topic, known.topic == topic and known.id or '+', publisher, range[1], range[2])
  end
  return next(wanted) and found
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
local function split_doubles(topic, run, missing)
  local found = find_doubles(topic, run, missing)
  if not found then return {missing} end
  local parts = {{}}
  for _, i in ipairs(missing) do
    local publisher, number = publication_of(run, i)
    local here = found[publisher] and found[publisher][number]
    local entry = here and call('XRANGE', K.log(topic), here, here)[1]
    local origin = entry and string.match(source_of(entry[2]) or origin_at(here), '^[^~]*')
    if origin and origin ~= run.origin then
      parts[#parts + 1], parts[#parts + 2] = {i, here = here}, {}
    elseif here or not is_sequence_recorded(load_publisher(publisher), number) then
      table.insert(parts[#parts], i)
    end
  end
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
    elseif not before.opened and before.own and call('HEXISTS', K.sessions(), publisher) == 1 then
      -- It logged on before anything was replicated here.
      call('HSET', K.sequences(), publisher .. ' open', string.format('1 %.0f', before.own))
    end
    call('HSET', K.publishers(), publisher, string.format('%.0f', found[1]) .. ' ' .. found[2] .. ' ' .. topic)
  end
  for publisher, before in pairs(loaded_publishers) do
    if before.is_new then save_ranges(publisher, before.ranges) end
  end
  loaded_publishers = {}
end
