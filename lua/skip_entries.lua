--- skip_entries: go over entries of a topic's log, a bounded part of them.
--- ARGV topic, after, until_id, most
--- GIVES {the last one that was gone over or `after`, how many, 1 if there are no more}
--- FLAGS no-writes, allow-oom
--- @include fail
local number, bytes, step, ended = 0, 0, 16, false
most = math.min(tonumber(most), 2 * V.batch)
while not ended and number < most and bytes < V.bytes do
  step = math.min(step, most - number)
  local entries = call('XRANGE', K.log(topic), '(' .. after, until_id, 'COUNT', step)
  for _, entry in ipairs(entries) do
    number, after = number + 1, entry[1]
    for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
  end
  ended = #entries < step
  step = math.max(4, math.min(V.batch, math.floor(V.bytes * number / (8 * math.max(bytes, 1)))))
end
return {after, number, ended and 1 or 0}
