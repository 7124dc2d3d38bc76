--- handled: what actions have not handled yet: they read messages from the logs when they come to them.
--- @include ref, bound

-- Rows of an action and a stream that it reads: kind (`log`, `journal` or `deliveries`) and name of that, action, the field of its
-- place there, the words of `how` that it wants, '' all. As kind and name -> rows.
local function read_readers(from)
  local readers = {}
  for i = from, #ARGV, 5 do
    local stream, hows = ARGV[i] .. ' ' .. ARGV[i + 1], ARGV[i + 4]
    readers[stream] = readers[stream] or {}
    table.insert(readers[stream], {action = ARGV[i + 2], field = ARGV[i + 3], hows = hows ~= '' and ' ' .. hows .. ' '})
  end
  return readers
end

-- The last entry that is done, and whether that is so of a part of it only (then its place has `+<events>`).
local function reader_place(reader)
  local id, part = string.match(call('HGET', K.action(reader.action), reader.field) or '', '^(%d+%-%d+)(%+?)')
  return id or '0-0', part == '+'
end

-- Adds ref -> `action <name>` to `refs`. False when the action is so far behind that a call cannot read it all.
local function read_unhandled(stream, reader, refs)
  local place, part = reader_place(reader)
  local start, bytes, number = (part and '' or '(') .. place, 0, 0
  repeat
    local entries = call('XRANGE', stream, start, '+', 'COUNT', 8)
    for _, entry in ipairs(entries) do
      local fields, how, text = entry[2], '', ''
      for i = 1, #fields, 2 do
        if fields[i] == F.how then how = fields[i + 1] elseif fields[i] == F.refs then text = fields[i + 1] end
        bytes = bytes + #fields[i + 1]
      end
      if not reader.hows or string.find(reader.hows, ' ' .. how .. ' ', 1, true) then
        for ref in string.gmatch(text, '%S+') do refs[ref], number = 'action ' .. reader.action, number + 1 end
      end
      start = '(' .. entry[1]
    end
    if #entries < 8 then return true end
  until bytes > V.bytes or number > V.trim_refs
  return false
end

-- An action that reads the log itself needs what is behind its place; one that reads a queue's journal or deliveries, what
-- those tell of.
local function lower_to_readers(bound, topic, queues, readers, unhandled)
  for _, reader in ipairs(readers['log ' .. topic] or {}) do
    local place, part = reader_place(reader)
    lower(bound, place, (part and '(' or '') .. place, 'action ' .. reader.action)
  end
  for _, queue in ipairs(queues) do
    for kind, stream in pairs({journal = K.journal(queue.name), deliveries = K.deliveries(queue.name)}) do
      for _, reader in ipairs(readers[kind .. ' ' .. queue.name] or {}) do
        local whole = read_unhandled(stream, reader, unhandled)
        if not whole then lower(bound, '0-0', '0-0', 'action ' .. reader.action) end
      end
    end
  end
end
