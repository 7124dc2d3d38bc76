--- locate_in_log: where a topic's log has a point: its last entry up to there, and what is needed to count those behind.
--- ARGV topic, point
--- GIVES {last ID up to the point, last ID of all, entries ever added, entries there}
--- FLAGS no-writes, allow-oom
--- @include fail
-- point: an ID, `+` for the end, `-` for the start.
local info, facts = redis.pcall('XINFO', 'STREAM', K.log(topic)), {}
for k = 1, #info, 2 do facts[info[k]] = info[k + 1] end
local entry = point ~= '-' and call('XREVRANGE', K.log(topic), point, '-', 'COUNT', 1)[1]
return {
  entry and entry[1] or '0-0', facts['last-generated-id'] or '0-0', facts['entries-added'] or 0, facts['length'] or 0,
}
