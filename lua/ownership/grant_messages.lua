--- grant_messages: make an instance that asked for messages of a queue their owner, where nobody here can take them.
--- ARGV now, queue_name, by, rooms, heard, bookmarks...
--- FAIL UNKNOWN_QUEUE
--- GIVES {how many it owns now, 1 if the queue is to be dispatched and read on first: ask again, else 0}
--- FLAGS allow-oom
--- @include clock, fail, foreign_bookmarks, ownership_transfer, log_catch_up, dispatch, unheard_grants
-- by: the origin that asked. rooms: owners, and how many messages it has room for of each, parted by spaces. heard: origins and up to
-- where it had their journals then, `<origin>~<ID>`. What this instance does not own, what somebody holds, what is not here: passed
-- over, since a request is a hint. Call it late or twice: who owns a message decides, and what was granted since counts.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local own = call('HGET', K.instance(), F.origin)
if by == own or not queue.owner or queue.concurrency or queue.recovering then return {0, 0} end
local room = 0
for name, part in string.gmatch(rooms, '(%S+) (%d+)') do
  if message_owner().is_own_name(name) then room = room + part end
end
local unheard, known = unheard_grants(queue, by, own, heard)
room = unheard and room - unheard or 0
if room <= 0 then return {0, 0} end
-- Subscriptions here come first: what is left then, nobody here can take.
local _, more = dispatch_or_defer(queue_name, ms, V.batch, nil, true)
if more then return {0, 1} end
local refs, names, where, unread = {}, {}, {}, false
for i = bookmarks_from, #ARGV do
  if #refs == room then break end
  local here, topic = find_bookmark(ARGV[i], own)
  local ref = here and ref_of(topic, here)
  if ref and not where[ref] then
    local place = where_is(queue, ref)
    if place == 'waiting' and not unread then
      unread = not catch_up_with_logs(queue, ms)
      place = where_is(queue, ref)
    end
    if place == 'ready' or place == 'sorted' then
      refs[#refs + 1], names[#names + 1], where[ref] = ref, counting_bookmark(topic, here), place
    end
  end
end
if refs[1] then
  local epochs = call('HMGET', K.owners(queue_name), unpack(refs))
  for i, text in ipairs(epochs) do epochs[i] = string.format('%d', (text and string.match(text, ' (%d+)') or 0) + 1) end
  move_to_remote(queue, refs, where)
  note_owners(queue, refs, by, epochs, own)
  local id = journal_transfer(queue, refs, by, epochs, names, '', '')
  call('HSET', K.granted(queue_name), grants_field(by), known .. ' ' .. id .. ' ' .. #refs)
  call('HINCRBY', K.queue(queue_name), F.transferred_out, #refs)
end
return {#refs, unread and 1 or 0}
