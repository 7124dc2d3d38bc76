--- count_entries: one step of counting the entries of a topic's log between two IDs.
--- ARGV topic, after, until_id
--- GIVES {`after` of the next step or '', number}
--- FLAGS no-writes, allow-oom
--- @include fail, entry_walk
local last, number, ended = walk_entries(topic, after, until_id, V.batch, V.bytes / 2)
return {ended and '' or last, number}
