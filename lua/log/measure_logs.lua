--- measure_logs: how much the logs of topics have, and which are their first and last messages.
--- ARGV topics...
--- GIVES of each {entries that are there, entries ever added, bytes, first ID, where that message was published, last ID, where that was}; '' where there is none
--- FLAGS no-writes, allow-oom
--- @include fail, source
-- Bodies stay in the server: a reader asks for the logs of many topics each second.
local function named(entry)
  if not entry then return '', '' end
  return entry[1], source_of(entry[2]) or ''
end

local out = {}
for i = topics_from, #ARGV do
  local info, facts = redis.pcall('XINFO', 'STREAM', K.log(ARGV[i])), {}
  for k = 1, #info, 2 do facts[info[k]] = info[k + 1] end
  local bytes = facts.length and call('MEMORY', 'USAGE', K.log(ARGV[i])) or 0
  local first, first_source = named(facts['first-entry'])
  local last, last_source = named(facts['last-entry'])
  out[#out + 1] = {facts.length or 0, facts['entries-added'] or 0, bytes, first, first_source, last, last_source}
end
return out
