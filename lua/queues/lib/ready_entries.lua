--- ready_entries: entries of messages that are ready again, or are due: they are read from their logs once more.
--- @include log_front

-- Entries of refs from the `first` one on, false for those that are gone, and which ref is the last of them. IDs that follow each other have nothing
-- between them: such refs are read together, as many as were small enough when their log was read last.
local function entries_of_neighbours(refs, first)
  local start, ms, from, ending = string.match(refs[first], '^(%l(%d+))%l(%d+)(/.*)$')
  local log = K.log(string.sub(ending, 2))
  local last, number, to = first, tonumber(from), from
  local most = #from > 14 and first or math.min(#refs, first + (usual_batches[log] or 4) - 1)
  while last < most do
    local following = string.format('%d', number + 1)
    if refs[last + 1] ~= start .. string.char(96 + #following) .. following .. ending then break end
    last, number, to = last + 1, number + 1, following
  end
  local found = call('XRANGE', log, ms .. '-' .. from, ms .. '-' .. to)
  if #found == last - first + 1 then return found, last end
  local entries, at = {}, 1
  for i = 1, last - first + 1 do
    local is_there = found[at] and found[at][1] == ms .. '-' .. string.format('%.0f', number - last + first + i - 1)
    entries[i] = is_there and found[at]
    if is_there then at = at + 1 end
  end
  return entries, last
end

local function bytes_of_fields(fields)
  if not fields[3] then return #fields[1] + #fields[2] end
  local bytes = 0
  for _, text in ipairs(fields) do bytes = bytes + #text end
  return bytes
end
