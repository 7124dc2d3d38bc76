--- copies: where what other origins published is here, by runs of IDs that follow each other both there and here.
--- @include ref, batch

-- Runs that were looked up: neighbours mostly are of the same one.
local loaded_runs = {}

local function parse_run(member)
  local ms, sequence, count, here_ms, here = string.match(member, '^%l(%d+)%l(%d+) (%d+) (%d+)%-(%d+)$')
  return {ms = ms, first = tonumber(sequence), count = tonumber(count), here_ms = here_ms, here = tonumber(here)}
end

local function id_in_run(run, id)
  local ms, sequence = string.match(id, '^(%d+)%-(%d+)$')
  local offset = ms == run.ms and sequence - run.first or -1
  if offset < 0 or offset >= run.count then return nil end
  return string.format('%s-%.0f', run.here_ms, run.here + offset)
end

-- The run that an ID may be of.
local function run_at(topic, origin, id)
  return call('ZRANGE', K.copies(topic, origin), '[' .. order_of(id) .. '~', '-', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
end

-- The ID here of what an origin recorded under an ID; nil where it is not here.
local function copy_of(topic, origin, id)
  local key = K.copies(topic, origin)
  local found = loaded_runs[key] and id_in_run(loaded_runs[key], id)
  if found then return found end
  local member = run_at(topic, origin, id)
  if not member then return nil end
  loaded_runs[key] = parse_run(member)
  return id_in_run(loaded_runs[key], id)
end

-- Of IDs that rise, at `from`, `from` + 2, ... `to`: the last one up to which they follow each other.
local function last_in_sequence(pairs, from, to)
  local prefix, sequence = string.match(pairs[from], '^(%d+%-)(%d+)$')
  local low, high = from, to
  while low < high do
    -- Numbers that rise follow each other up to one that is as much higher as it stands later.
    local middle = high == to and high or low + 2 * math.ceil((high - low) / 4)
    local same, number = string.match(pairs[middle], '^(%d+%-)(%d+)$')
    -- Of longer ones Lua does not keep all digits: each is by itself.
    if same == prefix and #number < 16 and number - sequence == (middle - from) / 2 then low = middle else high = middle - 2 end
  end
  return low
end

-- pairs: ID there and ID here in turn, rising in both.
local function note_copies(topic, origin, pairs)
  local members, start = {}, 1
  while start < #pairs do
    local last = last_in_sequence(pairs, start, #pairs - 1)
    last = last_in_sequence(pairs, start + 1, last + 1) - 1
    members[#members + 1] = 0
    members[#members + 1] = string.format('%s %d %s', order_of(pairs[start]), (last - start) / 2 + 1, pairs[start + 1])
    start = last + 2
  end
  call_in_batches('ZADD', K.copies(topic, origin), members)
  call('SADD', K.origins(topic), origin)
end
