--- read_journal: what a queue journaled since a place, its messages named by their bookmarks: as other instances know them.
--- ARGV queue_name, after, count
--- FAIL UNKNOWN_QUEUE
--- GIVES {where to go on or '', rows, a list each: see replication/lib/journal_batch; 1 if there is more, else 0}
--- FLAGS no-writes, allow-oom
--- @include fail, ref, message_owner, queue
-- Barriers are each instance's own. A message that is not in its log any more is named as if it was published here.
if not load_queue(queue_name) then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local rows, last, number, bytes, ended = {}, '', 0, 0, false

local function bookmark_of(ref)
  local topic, id = parse_ref(ref)
  if call('EXISTS', K.origins(topic)) == 0 then return topic .. '~' .. origin_at(id) .. '~' .. id end
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  for _, text in ipairs(entry and entry[2] or {}) do bytes = bytes + #text end
  return topic .. '~' .. (entry and counting_source(topic, id, entry[2]) or origin_at(id) .. '~' .. id)
end

local function row_of(id, fields)
  local known, bookmarks = {}, {}
  for i = 1, #fields, 2 do known[fields[i]] = fields[i + 1] end
  -- A transfer names its messages itself.
  for name in string.gmatch(known[F.bookmarks] or '', '%S+') do bookmarks[#bookmarks + 1] = name end
  for ref in string.gmatch(bookmarks[1] and '' or known[F.refs] or '', '%S+') do bookmarks[#bookmarks + 1] = bookmark_of(ref) end
  number = number + #bookmarks + 1
  local reason = known[F.reason] or ''
  if known[F.consumer_reason] then reason = reason .. ' ' .. known[F.consumer_reason] end
  return {
    known[F.source] or origin_at(id) .. '~' .. id, known[F.path] or '', known[F.how], reason, known[F.by] or '',
    known[F.attempts] or '', known[F.returns] or '', known[F.owner] or '', known[F.epochs] or '', #bookmarks .. (known[F.late] and ' late' or ''),
    unpack(bookmarks),
  }, known[F.how]
end

repeat
  local entries = call('XRANGE', K.journal(queue_name), '(' .. (last == '' and after or last), '+', 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local row, how = row_of(entry[1], entry[2])
    if how ~= V.barrier then rows[#rows + 1] = row end
    last = entry[1]
    if number >= tonumber(count) or bytes >= V.bytes then break end
  end
  ended = #entries < 16 and (not entries[1] or last == entries[#entries][1])
until ended or number >= tonumber(count) or bytes >= V.bytes
return {last, rows, ended and 0 or 1}
