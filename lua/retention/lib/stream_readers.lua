--- stream_readers: what actions have not handled yet and destinations do not have: who comes to a stream later and needs it until then.
--- @include ref, trim_bound

-- Rows of a reader and a stream: kind (`log`, `journal` or `deliveries`) and name of that, who it is (`action <name>` or
-- `destination <name>`), the field of its place there, the words of `how` that it wants, '' all. As kind and name -> rows.
local function read_readers(from)
  local readers, version = {}, call('HGET', K.instance(), F.catalog)

  -- The link says what it carries by the catalog that it saw: what the other side does not have, it does not need.
  local function is_carried(key, field)
    local known = call('HMGET', key, F.catalog, field)
    return known[2] or known[1] ~= version
  end

  for i = from, #ARGV, 5 do
    local stream, hows = ARGV[i] .. ' ' .. ARGV[i + 1], ARGV[i + 4]
    local kind, name = string.match(ARGV[i + 2], '^(%S+) (.*)$')
    local reader = {who = ARGV[i + 2], key = kind == 'action' and K.action(name) or K.sent(name), field = ARGV[i + 3]}
    reader.hows = hows ~= '' and ' ' .. hows .. ' '
    if kind == 'action' or is_carried(reader.key, reader.field) then
      readers[stream] = readers[stream] or {}
      table.insert(readers[stream], reader)
    end
  end
  return readers
end

-- The last entry that is done, and whether that is so of a part of it only (then its place has `+<events>`).
local function reader_place(reader)
  local id, part = string.match(call('HGET', reader.key, reader.field) or '', '^(%d+%-%d+)(%+?)')
  return id or '0-0', part == '+'
end

-- Adds ref -> who needs it to `refs`. False when the reader is so far behind that a call cannot read it all.
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
        for ref in string.gmatch(text, '%S+') do refs[ref], number = reader.who, number + 1 end
      end
      start = '(' .. entry[1]
    end
    if #entries < 8 then return true end
  until bytes > V.bytes or number > V.trim_refs
  return false
end

-- Up to where every destination was told which messages came under several bookmarks, as an order; nil: nobody is to be told.
local function least_same(topic, readers)
  local least
  for _, reader in ipairs(readers['log ' .. topic] or {}) do
    local place = string.find(reader.who, '^destination ') and order_of(call('HGET', reader.key, 'same ' .. topic) or '0-0')
    if place and (not least or place < least) then least = place end
  end
  return least
end

-- Whoever reads the log itself needs what is behind its place; who reads a queue's journal or deliveries, what those tell of.
local function lower_to_readers(bound, topic, queues, readers, unhandled)
  for _, reader in ipairs(readers['log ' .. topic] or {}) do
    local place, part = reader_place(reader)
    lower_bound(bound, place, (part and '(' or '') .. place, reader.who)
  end
  for _, queue in ipairs(queues) do
    for kind, stream in pairs({journal = K.journal(queue.name), deliveries = K.deliveries(queue.name)}) do
      for _, reader in ipairs(readers[kind .. ' ' .. queue.name] or {}) do
        -- Mostly what holds all of the log needs no look at what it has not read.
        local whole = bound.id ~= '0-0' and read_unhandled(stream, reader, unhandled)
        if not whole then lower_bound(bound, '0-0', '0-0', reader.who) end
      end
    end
  end
end
