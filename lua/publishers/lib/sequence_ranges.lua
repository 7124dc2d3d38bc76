--- sequence_ranges: which numbers of a publisher are recorded here, on whatever way they came, as runs that outlive their messages.
-- `<first>-<last> ...`, rising, of what came as copies and of sessions that are over; and of the session that goes on its
-- first number: its last one is the publisher's, or stands behind it since copies came of numbers beyond that: then each number of
-- the session is in the runs, too, as it is recorded.

local function read_ranges(publisher)
  local texts, ranges = call('HMGET', K.sequences(), publisher, publisher .. ' open'), {}
  for first, last in string.gmatch(texts[1] or '', '(%d+)%-(%d+)') do
    ranges[#ranges + 1] = {tonumber(first), tonumber(last)}
  end
  return ranges, texts[2]
end

-- Adds a run, joined with those that it touches.
local function add_range(ranges, first, last)
  local joined = {}
  for _, range in ipairs(ranges) do
    if range[2] + 1 < first or range[1] > last + 1 then
      joined[#joined + 1] = range
    else
      first, last = math.min(first, range[1]), math.max(last, range[2])
    end
  end
  joined[#joined + 1] = {first, last}
  table.sort(joined, function(one, other) return one[1] < other[1] end)
  return joined
end

local function save_ranges(publisher, ranges)
  local texts = {}
  for i, range in ipairs(ranges) do texts[i] = string.format('%.0f-%.0f', range[1], range[2]) end
  if texts[1] then call('HSET', K.sequences(), publisher, table.concat(texts, ' ')) end
end

-- The first and the last number of the session that goes on; nil without one.
local function session_range(publisher, opened)
  if not opened then return nil end
  local first, last = string.match(opened, '^(%d+) ?(%d*)$')
  last = tonumber(last) or tonumber(string.match(call('HGET', K.publishers(), publisher) or '0', '^%d+'))
  return tonumber(first), last
end

-- Up to where all is recorded from a number on; the one before it where that is not.
local function end_of_run(ranges, number)
  for _, range in ipairs(ranges) do
    if number >= range[1] and number <= range[2] then return range[2] end
  end
  return number - 1
end

-- A session begins; gives up to where all is recorded from its first number on. What goes on behind the last number of the one
-- before is one run with it. highest: the publisher's last number, on whatever way that came.
local function open_session_range(publisher, number, highest)
  local ranges, opened = read_ranges(publisher)
  local first, last = session_range(publisher, opened)
  if first and not string.find(opened, ' ', 1, true) and number >= first and number <= last + 1 then return last end
  local reached = highest
  if first and last >= first then
    ranges = add_range(ranges, first, last)
    save_ranges(publisher, ranges)
  end
  -- Without any, all that it has is of sessions here.
  if ranges[1] then reached = end_of_run(ranges, number) end
  local text = string.format('%.0f', number)
  if reached < highest then text = text .. ' ' .. string.format('%.0f', reached) end
  call('HSET', K.sequences(), publisher .. ' open', text)
  return reached
end
