--- browse_records: look through the records of a topic, a bounded number a call; nothing is changed.
--- ARGV now, topic, filter, after, keys...
--- FAIL NO_RECORDS
--- GIVES {`after` of the next call or '', key, ID, fields, ...}
--- FLAGS no-writes, allow-oom
--- @include clock, required_records, record_walk
-- filter: its tree or ''. after: '' at first. keys: only the records of these; none: all, of which one may come twice.
local walk, found = open_record_walk(open_records_or_fail(topic), filter, clock_ms(now)), {}
local function add(key, id, fields)
  local number = #found
  found[number + 1], found[number + 2], found[number + 3] = key, id, fields
end
local following
if ARGV[keys_from] then
  following = walk_keys(walk, after, keys_from, add)
else
  following = walk_records(walk, after, add)
end
return {following, unpack(found)}
