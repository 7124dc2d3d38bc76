--- duplicates: which of a publisher's messages are recorded already, and where.
--- @include source, incarnations, numbered_entries

-- The last message is known exactly; earlier ones are looked for backwards from it, in its topic: 1,000 entries at most,
-- or a call's share of bytes, in steps that begin small, since the bodies come along. Returns by sequence the IDs, and of copies
-- the sources.
local function find_sequences(topic, id, publisher, lowest, highest)
  local found, sources, left, seen, bytes, step, from = {}, {}, highest - lowest + 1, 0, 0, 2, id
  while left > 0 and seen < 1000 and bytes < V.bytes do
    local entries = call('XREVRANGE', K.log(topic), from, '-', 'COUNT', step)
    for _, entry in ipairs(entries) do
      local fields = entry[2]
      local by, number, size = publisher_number(fields)
      local sequence = number and tonumber(number)
      bytes = bytes + size
      if by == publisher and sequence and sequence >= lowest and sequence <= highest and not found[sequence] then
        found[sequence], sources[sequence] = entry[1], source_of(fields)
        left = left - 1
      end
    end
    if #entries < step then break end
    seen, from = seen + #entries, '(' .. entries[#entries][1]
    step = next_step(seen, bytes)
  end
  return found, sources
end

-- The bookmarks of the duplicates among `count` messages from `sequence`, or '' where one is not found any more.
local function known_sequences(publisher, sequence, count)
  local value = call('HGET', K.publishers(), publisher)
  if not value then return {} end
  local last, id, topic = string.match(value, '^(%d+) (%S+) (.*)$')
  local highest = math.min(tonumber(last), sequence + count - 1)
  if highest < sequence then return {} end
  local found, sources = find_sequences(topic, id, publisher, sequence, highest)
  local known = {}
  for n = sequence, highest do
    known[#known + 1] = found[n] and topic .. '~' .. (sources[n] or origin_at(found[n]) .. '~' .. found[n]) or ''
  end
  return known
end
