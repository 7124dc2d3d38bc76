--- numbered_entries: going back through a log for messages that publishers numbered.

-- Who published an entry and under which number, both nil where nobody is named, and the bytes of its fields.
local function publisher_number(fields)
  local by, sequence, bytes = nil, nil, 0
  for i = 1, #fields, 2 do
    bytes = bytes + #fields[i + 1]
    if fields[i] == F.publisher then by = fields[i + 1] end
    if fields[i] == F.sequence then sequence = fields[i + 1] end
  end
  return by, sequence, bytes
end

-- How many entries to read next. The bodies come along, so a step is a part of what a call may read.
local function next_step(seen, bytes)
  return math.max(2, math.min(500, math.floor(V.bytes * seen / (4 * math.max(bytes, 1)))))
end
