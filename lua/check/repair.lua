--- repair: mend what is wrong with some messages of a queue, by live state, log and journal of one moment.
--- ARGV now, queue_name, after, refs...
--- FAIL UNKNOWN_QUEUE
--- GIVES {number looked at, or -1: read the journal on and ask again; the journal's last ID; a word each or ''}
--- FLAGS allow-oom
--- @include clock, fail, remedies, timetable
-- As `verify`, and what a word names is mended: one thing a message and call, so call again until there is nothing left.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local found, look = {}, {queue = queue, ms = ms, cursors = {}, freed = {}}
local looked, last = judge_refs(look, after, refs_from, function(ref, word, letters)
  found[#found + 1] = {ref = ref, word = word, letters = letters, fields = look.fields}
end)
if not looked then return {-1, after} end
local words = {}
for i, item in ipairs(found) do
  words[i] = item.word
  if item.word ~= '' then
    look.fields = item.fields
    mend_message(look, item.ref, item.word, item.letters)
    add_due(ms, 'dispatch ' .. queue_name, 'NX')
  end
end
free_room(look.freed, ms, queue_name)
return {looked, last, unpack(words)}
