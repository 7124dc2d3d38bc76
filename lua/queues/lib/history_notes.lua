--- history_notes: what a queue's definition leaves in its history, so that log and journal tell what is in it.
--- @include ref

-- Where it begins: topic and ID in turn. Nothing is noted of a queue that begins with all that its logs have.
local function note_start(name, starts)
  if #starts == 0 then return end
  call('XADD', K.definitions(name), '*', F.how, 'start', F.cursors, table.concat(starts, ' '))
end

-- A filter that is given up judged everything up to the cursors.
local function note_former_filter(name, former, tree)
  if former == tree then return end
  local cursors, texts = call('HGETALL', K.cursors(name)), {}
  -- What is listed beyond its cursor was let in, too.
  local listed, topic = string.match(call('HGET', K.queue(name), F.listed) or '', '^%d+ (%S+) .* %w+/(.+)$')
  for i = 1, #cursors, 2 do
    local id = string.match(cursors[i + 1], '^%S+')
    if cursors[i] == topic and order_of(listed) > order_of(id) then id = listed end
    texts[#texts + 1] = cursors[i] .. ' ' .. id
  end
  if #texts == 0 then return end
  call('XADD', K.definitions(name), '*', F.how, F.filter, F.tree, former, F.cursors, table.concat(texts, ' '))
end
