--- skip_entries: go over entries of a topic's log, a bounded part of them.
--- ARGV topic, after, until_id, most
--- GIVES {the last one that was gone over or `after`, how many, 1 if there are no more}
--- FLAGS no-writes, allow-oom
--- @include fail, entry_walk
local last, number, ended = walk_entries(topic, after, until_id, math.min(tonumber(most), 2 * V.batch), V.bytes)
return {last, number, ended and 1 or 0}
