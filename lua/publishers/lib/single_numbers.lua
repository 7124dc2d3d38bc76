--- single_numbers: which of a publisher's numbers are recorded, each for itself, since copies came of some beyond those of its
--- session. Included as `single_numbers()`.
--- @include fail, sequence_ranges, publisher_failover

local function recorded_ranges(publisher)
  local ranges, opened = read_ranges(publisher)
  local first, last = session_range(publisher, opened)
  return last >= first and add_range(ranges, first, last) or ranges, first
end

-- As `admit_sequences`; and the runs of those that are not recorded, by their places from 0. The number before the first one is here, or
-- the session began with that.
local function admit_each(publisher, first, count)
  local ranges, began = recorded_ranges(publisher)
  local function is_there(number) return end_of_run(ranges, number) >= number end
  if first ~= began and not is_there(first - 1) then
    local expected = string.format('%.0f', end_of_run(ranges, began) + 1)
    fail(E.SEQUENCE_GAP, {publisher = publisher, expected = expected, got = string.format('%.0f', first)})
  end
  local known, parts, part = {}, {}, nil
  for i = 0, count - 1 do
    if is_there(first + i) then
      known[#known + 1], part = '', nil
    elseif part then
      part.to = i
    else
      part = {from = i, to = i}
      parts[#parts + 1] = part
    end
  end
  return first, known, parts
end

-- The last message is the highest one, whoever recorded it.
local function remember_each(publisher, first, last, id, topic)
  save_ranges(publisher, add_range((read_ranges(publisher)), first, last))
  local highest = tonumber(string.match(call('HGET', K.publishers(), publisher) or '0', '^%d+'))
  if last > highest then call('HSET', K.publishers(), publisher, string.format('%.0f', last) .. ' ' .. id .. ' ' .. topic) end
end

-- The one before a number may have come as a copy since the session began.
local function note_predecessor_of_number(publisher, number)
  local last, place = string.match(call('HGET', K.publishers(), publisher) or '', '^(%d+) (.*)$')
  if tonumber(last) == number - 1 then note_predecessor(publisher, place) end
end
