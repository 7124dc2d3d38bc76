--- duplicates: which of a publisher's messages are recorded already, and where.

-- The last message is known exactly; earlier ones are looked for backwards from it, in its topic, 1,000 entries at most.
local function find_sequences(topic, id, publisher, lowest, highest)
  local found, left = {}, highest - lowest + 1
  for _, entry in ipairs(call('XREVRANGE', K.log(topic), id, '-', 'COUNT', 1000)) do
    local fields, by, sequence = entry[2], nil, nil
    for i = 1, #fields, 2 do
      if fields[i] == F.publisher then by = fields[i + 1] end
      if fields[i] == F.sequence then sequence = tonumber(fields[i + 1]) end
    end
    if by == publisher and sequence and sequence >= lowest and sequence <= highest then
      found[sequence] = entry[1]
      left = left - 1
      if left == 0 then break end
    end
  end
  return found
end

-- The texts of the duplicates among `count` messages from `sequence`: topic and ID, or '' where it is not found any more.
local function known_sequences(publisher, sequence, count)
  local value = call('HGET', K.publishers(), publisher)
  if not value then return {} end
  local last, id, topic = string.match(value, '^(%d+) (%S+) (.*)$')
  local highest = math.min(tonumber(last), sequence + count - 1)
  if highest < sequence then return {} end
  local found, known = find_sequences(topic, id, publisher, sequence, highest), {}
  for n = sequence, highest do known[#known + 1] = found[n] and topic .. ' ' .. found[n] or '' end
  return known
end
