--- count_entries: one step of counting the entries of a topic's log between two IDs.
--- ARGV topic, after, until_id
--- GIVES {`after` of the next step or '', number}
--- FLAGS no-writes, allow-oom
--- @include fail
local number, bytes, step, ended = 0, 0, 16, false
while not ended and number < V.batch and bytes < V.bytes / 2 do
  local entries = call('XRANGE', K.log(topic), '(' .. after, until_id, 'COUNT', step)
  for _, entry in ipairs(entries) do
    number, after = number + 1, entry[1]
    for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
  end
  ended = #entries < step
  step = math.max(4, math.min(V.batch - number, math.floor(V.bytes * number / (8 * math.max(bytes, 1)))))
end
return {ended and '' or after, number}
