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

-- pairs: ID there and ID here in turn, rising in both.
local function note_copies(topic, origin, pairs)
  local members, start, prefix, number, prefix_here, number_here = {}, nil, nil, nil, nil, nil
  local function close_run(last)
    if not start then return end
    members[#members + 1] = 0
    members[#members + 1] = string.format('%s %d %s', order_of(pairs[start]), (last - start) / 2 + 1, pairs[start + 1])
  end
  -- What is to follow is put together rather than each ID taken apart: this is done of every copy.
  for i = 1, #pairs, 2 do
    if start then number, number_here = number + 1, number_here + 1 end
    if not start or pairs[i] ~= prefix .. number or pairs[i + 1] ~= prefix_here .. number_here then
      close_run(i - 2)
      start, prefix, number = i, string.match(pairs[i], '^(%d+%-)(%d+)$')
      prefix_here, number_here = string.match(pairs[i + 1], '^(%d+%-)(%d+)$')
      number, number_here = tonumber(number), tonumber(number_here)
    end
  end
  close_run(#pairs - 1)
  call_in_batches('ZADD', K.copies(topic, origin), members)
  call('SADD', K.origins(topic), origin)
end
