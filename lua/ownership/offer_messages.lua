--- offer_messages: name to an instance that has room for messages of a queue those that nobody here can take.
--- ARGV now, queue_name, by, shares, heard, place, wishes
--- FAIL UNKNOWN_QUEUE
--- GIVES {how many are offered, 1 if the queue is to be dispatched, read on or sorted first: ask again, else 0}
--- FLAGS allow-oom
--- @include clock, fail, requests, offered_messages, dispatch, unheard_grants, filter_indexes
-- A group is whole at one instance: of a queue with groups nothing is offered.
-- by: the origin that asked. shares: owners, and how many messages it has room for of each. heard: as grant_messages has it. place:
-- '', or of an earlier offer, of which it could take nothing. wishes: see ownership/lib/requests. Nothing changes owner here: the
-- other one names what it takes, and that is granted. A filter that it asks with has an index here, as one of a subscription has.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local own = names_of_instance().origin
if by == own or not queue.owner or queue.concurrency or queue.recovering or queue.topic == V.nowhere then return {0, 0} end
local room = 0
for name, part in string.gmatch(shares, '(%S+) (%d+)') do
  if message_owner().is_own_name(name) then room = room + part end
end
local unheard = room > 0 and unheard_grants(queue, by, own, heard)
room = unheard and room - unheard or 0
if room <= 0 then return {0, 0} end
local asked = {}
for _, wish in ipairs(read_wishes(wishes)) do
  local is_kept = wish.filter == V.none
    or queue.format ~= 'binary' and keep_asked_filter(queue_name, wish.filter, wish.tree, ms)
  if is_kept then asked[#asked + 1] = wish end
end
-- Subscriptions here come first: what is left then, nobody here can take.
local _, more = dispatch_or_defer(queue_name, ms, V.batch, nil, true)
if more then return {0, 1} end
local bookmarks, next_place, is_all = find_offered(load_queue(queue_name), asked, room, place, ms)
if bookmarks[1] then
  write_request(queue, F.bookmarks, table.concat(bookmarks, ' '), F.to, by, F.offered, string.format('%d', room), F.place, next_place)
end
return {#bookmarks, (bookmarks[1] or is_all) and 0 or 1}
