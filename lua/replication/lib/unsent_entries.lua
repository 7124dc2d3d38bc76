--- unsent_entries: what a destination was not sent yet, or has not acknowledged, of the streams that it is sent.
--- @include ref

-- What came from the instance there, or passed it, does not go back.
local function came_from(fields, peer)
  local n = #fields
  if n < 4 or fields[n - 1] ~= F.path then return false end
  if string.match(fields[n - 2], '^[^~]*') == peer then return true end
  return peer ~= '' and string.find(' ' .. fields[n], ' ' .. peer .. '/', 1, true) ~= nil
end

-- stream: `log <topic>` or `journal <queue>`. The ID of the first entry behind a place that goes there; nil: there is none.
local function first_unsent(stream, place, peer)
  local kind, name = string.match(stream, '^(%l+) (.*)$')
  local key, count = kind == 'log' and K.log(name) or K.journal(name), 1
  for _ = 1, 20 do
    local entries = call('XRANGE', key, '(' .. place, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      if not came_from(entry[2], peer) then return entry[1] end
      place = entry[1]
    end
    if #entries < count then return nil end
    count = 50
  end
  return place
end

-- Of what `sent` has: whether it is such a stream.
local function is_stream(name)
  return string.match(name, '^log [^@]+$') or string.match(name, '^journal [^@]+$')
end
