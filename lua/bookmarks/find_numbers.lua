--- find_numbers: where messages are here that publishers know by numbers of theirs; looked for from a log's end, a part of it a call.
--- ARGV topic, from, names...
--- GIVES {`from` of the next call or '', place of a name, ID, bookmark, ...}
--- FLAGS no-writes, allow-oom
--- @include fail, source, incarnations, numbered_entries
-- from: `+`, or as given. names: sequence and publisher in turn, each once; the place of the first one is 0. Of several messages of a
-- number the last one counts: its publisher numbered anew.
local wanted, left, out, seen, bytes, step = {}, 0, {''}, 0, 0, 2
for i = names_from, #ARGV, 2 do
  wanted[ARGV[i] .. ' ' .. ARGV[i + 1]], left = left, left + 1
end
while left > 0 do
  local entries = call('XREVRANGE', K.log(topic), from, '-', 'COUNT', step)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local by, sequence, size = publisher_number(fields)
    bytes = bytes + size
    local name = by and sequence and sequence .. ' ' .. by
    if name and wanted[name] then
      local id = entry[1]
      out[#out + 1], out[#out + 2] = wanted[name], id
      out[#out + 1] = topic .. '~' .. (source_of(fields) or origin_at(id) .. '~' .. id)
      wanted[name], left = nil, left - 1
    end
  end
  if #entries < step or left == 0 then break end
  seen, from = seen + #entries, '(' .. entries[#entries][1]
  if seen >= 1000 or bytes >= V.bytes then
    out[1] = from
    break
  end
  step = next_step(seen, bytes)
end
return out
