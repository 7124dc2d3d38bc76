--- log_index: about every thousandth entry of a log, by how many were added up to it: counts and splits need not read it.
--- @include ref

-- Members are IDs, the score of each is the log's own count of what was ever added, that entry included. Entries that were
-- deleted since are counted, so that a difference of scores is what lies between two entries at most.
local function log_facts(log)
  local info, facts = redis.pcall('XINFO', 'STREAM', log), {}
  for k = 1, #info, 2 do facts[info[k]] = info[k + 1] end
  facts.added, facts.last = facts['entries-added'] or 0, facts['last-generated-id'] or '0-0'
  return facts
end

local function index_key(log) return K.index(string.sub(log, #K.log('') + 1)) end

local function point_at(index, rank)
  local found = call('ZRANGE', index, rank, rank, 'WITHSCORES')
  return found[1], tonumber(found[2])
end

-- How many points are at an ID or before it.
local function points_up_to(index, id)
  local order, low, high = order_of(id), 0, call('ZCARD', index)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if order_of((point_at(index, middle))) <= order then low = middle + 1 else high = middle end
  end
  return low
end

-- The last point, none where there is none. An index of a log that is not this one any more is forgotten.
local function last_point(log, facts)
  local index = index_key(log)
  local id, score = point_at(index, -1)
  if id and (score > facts.added or order_of(id) > order_of(facts.last)) then
    call('DEL', index)
    return nil
  end
  return id, score
end

-- What is counted up to the beginning, as far as nothing was deleted but from there on.
local function score_before(log, facts)
  local _, first = point_at(index_key(log), 0)
  return math.max(0, math.min((first or facts.added + 1) - 1, facts.added - (facts.length or 0)))
end

-- Half a step is enough: calls add many entries at a time, so that what crosses a thousand comes at any distance.
local function extend_index(log)
  local facts = log_facts(log)
  local _, score = last_point(log, facts)
  if facts.length and facts.length > 0 and facts.added - (score or 0) >= V.index_step / 2 then
    call('ZADD', index_key(log), facts.added, facts['last-entry'][1])
  end
end

-- Behind a trimming: the last point before the first entry stays, since counts begin at it.
local function shorten_index(log)
  extend_index(log)
  local first, index = call('XRANGE', log, '-', '+', 'COUNT', 1)[1], index_key(log)
  local gone = points_up_to(index, first and first[1] or V.last_id) - 1
  if gone > 0 then call('ZREMRANGEBYRANK', index, 0, math.min(gone, V.batch) - 1) end
end
