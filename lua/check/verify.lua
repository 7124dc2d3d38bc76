--- verify: what is wrong with some messages of a queue, by live state, log and journal of one moment; nothing is changed.
--- ARGV now, queue_name, after, refs...
--- FAIL UNKNOWN_QUEUE
--- GIVES {number looked at, or -1: read the journal on and ask again; the journal's last ID; a word each or ''}
--- FLAGS no-writes, allow-oom
--- @include clock, fail, verdict
-- after: the journal's ID up to which the caller has read it. refs: each with how much it is settled up to there.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local words = {}
local looked, last = judge_refs({queue = queue, ms = ms, cursors = {}}, after, refs_from, function(_, word)
  words[#words + 1] = word
end)
if not looked then return {-1, after} end
return {looked, last, unpack(words)}
