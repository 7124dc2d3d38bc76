--- check_owners: who owns messages of a queue, against the transfers that its journal has.
--- ARGV now, queue_name, repair, rows...
--- FAIL UNKNOWN_QUEUE
--- GIVES the refs whose transfer is not known
--- FLAGS allow-oom
--- @include clock, fail, journal_entries, foreign_bookmarks
-- rows: ref, owner, epoch, the origin that journaled it, `<origin>~<id>` of the bookmark that it named. With repair 1 the owner is
-- noted, and the message stands where that says. As with any transfer: the higher one counts, under the bookmark that counts.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local wrong = {}
for i = rows_from, #ARGV, 5 do
  local ref, new_owner, epoch, by, source = unpack(ARGV, i, i + 4)
  local where, topic, id = where_is(queue, ref), parse_ref(ref)
  local is_live = where and where ~= 'settled' and call('XRANGE', K.log(topic), id, id)[1]
  if is_live and is_later_transfer(call('HGET', K.owners(queue_name), ref), epoch, by) and is_counting_bookmark(topic, id, source) then
    wrong[#wrong + 1] = ref
    if repair == '1' then
      note_owners(queue, {ref}, new_owner, {epoch}, by)
      place_by_owner(queue, ref, ms)
    end
  end
end
return wrong
