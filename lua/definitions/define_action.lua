--- define_action: add an action or change it; what it follows anew, it follows from now on.
--- ARGV now, version, action, definition, heard, values...
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include clock, fail, catalog
-- heard: 1 if any action asks for happenings, else 0. values: threes of a word and what it is about:
-- `follow <source> <stream>` from its end, `begin` from its beginning, `wait <source>` from the time now, `leave <source>`,
-- `forget <source>`: all that is tracked, anew; `record <queue>` and `ignore <queue>`: its deliveries.
local ms = clock_ms(now)
check_catalog(version)

-- The ID that everything up to the end has, and how many entries were added up to there.
local function end_of(stream)
  local kind, name = string.match(stream, '^(%S+) ?(.*)$')
  local key = kind == 'journal' and K.journal(name) or kind == 'deliveries' and K.deliveries(name)
    or kind == 'log' and K.log(name) or K.happenings()
  if call('EXISTS', key) == 0 then return '0-0', 0, 0 end
  local facts, info = {}, call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  return facts['last-generated-id'], facts['entries-added'], facts.length
end

local function follow(source, cursor, read)
  if call('HSETNX', K.action(action), F.cursor .. ' ' .. source, cursor) == 0 then return end
  call('HSETNX', K.action(action), F.sequence_of .. ' ' .. source, 0)
  call('HSET', K.action(action), F.read .. ' ' .. source, read)
end

for i = values_from, #ARGV, 3 do
  local word, about, stream = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if word == 'follow' then
    local last, added = end_of(stream)
    follow(about, last, added)
  elseif word == 'begin' then
    local _, added, length = end_of(stream)
    follow(about, '0-0', added - length)
  elseif word == 'wait' then
    follow(about, string.format('%.0f', ms), 0)
  elseif word == 'leave' or word == 'forget' then
    -- The sequence stays: what was published under its numbers would make others look recorded.
    call('HDEL', K.action(action), F.cursor .. ' ' .. about)
    if word == 'forget' then call('DEL', K.tracked(action), K.waits(action)) end
  elseif word == 'record' then
    call('HSET', K.queue(about), F.recorded, 1)
  else
    call('HDEL', K.queue(about), F.recorded)
  end
end
if heard == '1' then call('HSET', K.instance(), F.heard, 1) else call('HDEL', K.instance(), F.heard) end
call('HSET', K.actions(), action, definition)
change_catalog()
return 1
