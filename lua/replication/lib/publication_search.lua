--- publication_search: where a publisher's messages are in a log, however far back, a part of it a call.
--- @include ref, numbered_entries
-- What a search has found so far is kept in `searches`, by origin: a line with the ID behind which it goes on, or `-` at the
-- begin of the log, then of each message its ID or `-`, its number and its publisher. A search that is over leaves `behind` and the ID of
-- the last message that it found: the next ones of that origin are looked for from there on first, since they mostly follow it.

-- What this call has read: entries, bytes.
local looked = {}

local function is_spent(share)
  return (looked.entries or 0) >= 1000 * share or (looked.bytes or 0) >= V.bytes * share
end

local function publication_name(publisher, number) return string.format('%.0f ', number) .. publisher end

-- Reads on until all is found, or the call has read enough. Returns where it goes on, nil at the end of the log.
local function read_publications(topic, command, from, to, search)
  local step, seen, bytes = 2, looked.entries or 0, looked.bytes or 0
  while search.left > 0 and not is_spent(1) do
    local entries = call(command, K.log(topic), from, to, 'COUNT', step)
    for _, entry in ipairs(entries) do
      local by, number, size = publisher_number(entry[2])
      local name = by and number and publication_name(by, tonumber(number))
      bytes = bytes + size
      if name and search.found[name] == false then search.found[name], search.left = entry[1], search.left - 1 end
    end
    seen = seen + #entries
    looked.entries, looked.bytes = seen, bytes
    if #entries < step then return nil end
    from, step = '(' .. entries[#entries][1], next_step(seen, bytes)
  end
  return from
end

-- What was found of these names; nil where the search of that origin was for others.
local function load_search(text, names)
  local lines, known = string.gmatch(text, '[^\n]+'), {}
  local search = {from = lines(), found = {}, left = 0}
  for line in lines do
    local id, name = string.match(line, '^(%S+) (.*)$')
    known[name] = id ~= '-' and id
  end
  for _, name in ipairs(names) do
    if known[name] == nil then return nil end
  end
  for name, id in pairs(known) do
    search.found[name] = id
    if not id then search.left = search.left + 1 end
  end
  return search
end

local function save_search(topic, origin, search)
  local lines = {search.from}
  for name, id in pairs(search.found) do lines[#lines + 1] = (id or '-') .. ' ' .. name end
  call('HSET', K.searches(topic), origin, table.concat(lines, '\n'))
end

local function begin_search(names)
  local search = {from = '+', found = {}, left = 0}
  for _, name in ipairs(names) do
    if search.found[name] == nil then search.found[name], search.left = false, search.left + 1 end
  end
  return search
end

-- names: of messages that are recorded. Returns IDs by name, false for what was trimmed; nil where the next call has to go on.
local function find_recorded(topic, origin, names)
  local text = call('HGET', K.searches(topic), origin) or ''
  local behind = string.match(text, '^behind (%S+)')
  local search = not behind and load_search(text, names)
  if not search then
    search = begin_search(names)
    if behind then read_publications(topic, 'XRANGE', '(' .. behind, '+', search) end
  end
  if search.from ~= '-' then search.from = read_publications(topic, 'XREVRANGE', search.from, '-', search) or '-' end
  if search.left == 0 then search.from = '-' end
  -- Who is not named for sure is looked for in the call that records the rest: it needs a part of what that may read.
  if search.from == '-' and not is_spent(0.5) then return search.found end
  save_search(topic, origin, search)
  return nil
end

-- names: of messages that may be recorded: looked for in this call alone, among as many of the last entries as it may read.
local function find_publications(topic, names)
  local search = begin_search(names)
  read_publications(topic, 'XREVRANGE', '+', '-', search)
  return search.found
end

local function end_search(topic, origin, id)
  call('HSET', K.searches(topic), origin, 'behind ' .. id)
end
