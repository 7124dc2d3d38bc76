--- measure_lag: how far logs go on behind places in them.
--- ARGV places...
--- GIVES of each {entries that were ever added, last ID, ID of the first entry behind the place or '', bytes of an entry, greatest ID removed}
--- FLAGS no-writes, allow-oom
--- @include fail, ref
-- places: topic and ID in turn. bytes: the mean of the first entry behind the place and the last one.
-- removed: by a trimming or by somebody else's XDEL, 0-0 for none; an XTRIM by somebody else leaves no trace.
local function bytes_of(entry)
  local bytes = 0
  for _, text in ipairs(entry[2]) do bytes = bytes + #text end
  return bytes
end

local out = {}
for i = places_from, #ARGV, 2 do
  local added, last, newest, deleted = 0, '0-0', nil, '0-0'
  local info = redis.pcall('XINFO', 'STREAM', K.log(ARGV[i]))
  for k = 1, #info, 2 do
    if info[k] == 'entries-added' then added = info[k + 1] end
    if info[k] == 'last-generated-id' then last = info[k + 1] end
    if info[k] == 'last-entry' then newest = info[k + 1] end
    if info[k] == 'max-deleted-entry-id' then deleted = info[k + 1] end
  end
  local first, bytes = '', 0
  if newest and last ~= ARGV[i + 1] then
    local entry = call('XRANGE', K.log(ARGV[i]), '(' .. ARGV[i + 1], '+', 'COUNT', 1)[1]
    if entry then first, bytes = entry[1], math.ceil((bytes_of(entry) + bytes_of(newest)) / 2) end
  end
  local removed = call('HGET', K.retention(), 'removed ' .. ARGV[i]) or '0-0'
  out[#out + 1] = {added, last, first, bytes, order_of(removed) > order_of(deleted) and removed or deleted}
end
return out
