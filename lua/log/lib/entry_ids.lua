--- entry_ids: the instance's clock: IDs rise over all topics, so they are one order of everything published here.
--- @include ref, log_index(), set_back, timetable

-- The least ID above one that is there; an entry of somebody else may have any number that 64 bits hold.
local function id_after(id)
  local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
  if tonumber(sequence) < 2 ^ 53 then return ms .. '-', sequence + 1 end
  return string.format('%.0f', ms + 1) .. '-', 0
end

-- The ID behind the clock's and not below `ms`, as what is before its sequence, and that.
local function id_at(ms)
  local clock = call('GET', K.clock()) or '0-0'
  local last = tonumber(string.match(clock, '^%d+'))
  if last < ms then return string.format('%d-', ms), 0 end
  if last > ms and first_behind_loss(ms) > last then clock = call('GET', K.clock()) end
  return id_after(clock)
end

-- One more ID of the clock, for a stream that is no log.
local function next_id(ms)
  local prefix, sequence = id_at(ms)
  local id = prefix .. string.format('%.0f', sequence)
  call('SET', K.clock(), id)
  return id
end

-- Sequences as texts: those of most calls begin at 0, and writing each anew takes a tenth of a publish of many messages.
local sequence_texts = {} -- kept over calls

-- Some more of them are written by each call of many messages, few enough that a script, which keeps none, loses little.
local function keep_sequence_texts(messages)
  local number = #sequence_texts
  if number >= 1000 then return end
  for sequence = number + 1, number + math.floor(messages / 8) do sequence_texts[sequence] = string.format('%d', sequence) end
end

-- Records entries `from` to `to` under consecutive IDs, each by add(run, id, i); returns the first and the last ID.
-- Somebody else's XADD may have used an ID that the clock has not seen; then the clock goes to the log's own last ID and
-- the first entry is tried once more. length: how many entries the log has then, about, if that is known.
local function record_entries(log, ms, from, to, add, length)
  local prefix, sequence = id_at(ms)
  -- With `%d`, which is exact up to 2^53 and takes a quarter of what `%.0f` does.
  local form, format, known = prefix .. '%d', string.format, sequence_texts
  local first = add(redis.pcall, format(form, sequence), from)
  if type(first) == 'table' then
    local info = redis.pcall('XINFO', 'STREAM', log)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then prefix, sequence = id_after(info[i + 1]) end
    end
    form = prefix .. '%d'
    first = add(call, format(form, sequence), from)
  end
  local last, before = first, sequence - from
  for i = from + 1, to do
    local text = known[before + i]
    last = text and prefix .. text or format(form, before + i)
    add(call, last, i)
  end
  if to - from >= 8 then keep_sequence_texts(to - from) end
  call('SET', K.clock(), last)
  wake_followers()
  if (length or call('XLEN', log)) % V.index_step <= to - from then log_index().extend_index(log) end
  return first, last
end
