--- index_log: find what a log's index lacks and add it, a bounded part of it.
--- ARGV topic
--- GIVES 1 if more may be lacking, else 0
--- FLAGS allow-oom
--- @include fail, log_index, entry_walk
-- Lacking: of logs older than the index, and where somebody else wrote. What was looked through is noted, so that it is not again.
local log, index, field = K.log(topic), K.index(topic), 'index ' .. topic
local facts = log_facts(log)
last_point(log, facts)
local id = call('HGET', K.retention(), field)
local score = id and tonumber(call('ZSCORE', index, id) or nil)
if not score then id, score = '0-0', score_before(log, facts) end

-- The entry a thousand behind one, or after so many bytes, and its score; nothing if the end comes first.
local function next_point(after, last)
  local at, number, ended = walk_entries(topic, after, last, V.index_step, V.bytes)
  if ended then return nil end
  return at, score + number
end

local points = call('ZRANGE', index, '(' .. string.format('%.0f', score), '+inf', 'BYSCORE', 'LIMIT', 0, V.batch, 'WITHSCORES')
local added, its_score
for i = 1, #points, 2 do
  if points[i + 1] - score >= 2 * V.index_step then added, its_score = next_point(id, '(' .. points[i]) end
  if added then break end
  id, score = points[i], tonumber(points[i + 1])
end
if not added and #points < 2 * V.batch and facts.added - score >= V.index_step then
  added, its_score = next_point(id, '+')
end
if added then
  id = added
  call('ZADD', index, its_score, added)
end
if id ~= '0-0' then call('HSET', K.retention(), field, id) end
return (added or #points == 2 * V.batch) and 1 or 0
