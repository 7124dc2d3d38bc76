--- entry_walk: going over entries of a topic's log, a bounded part of them.
-- Gives the last entry that was gone over or `after`, how many, and whether there are no more.
local function walk_entries(topic, after, until_id, most, most_bytes)
  local number, bytes, step, ended = 0, 0, 16, false
  while not ended and number < most and bytes < most_bytes do
    step = math.min(step, most - number)
    local entries = call('XRANGE', K.log(topic), '(' .. after, until_id, 'COUNT', step)
    for _, entry in ipairs(entries) do
      number, after = number + 1, entry[1]
      for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
    end
    ended = #entries < step
    step = math.max(4, math.min(V.batch, math.floor(V.bytes * number / (8 * math.max(bytes, 1)))))
  end
  return after, number, ended
end
