--- check_queue: what a queue needs as a whole: its lease pass, the anchor of its leases, cursors and news of its topics.
--- ARGV now, queue_name, repair, topics...
--- GIVES {word, how many, ...} of what is wrong
--- FLAGS allow-oom
--- @include clock, fail, queue, ref, timetable, lease_runs
-- topics: some of those that feed it. With repair 1 what can be mended at once is; the first three words need more.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then return {'undefined', 1} end
local counts, out = {}, {}

local function count(word)
  if not counts[word] then
    out[#out + 1] = word
    counts[word] = 0
  end
  counts[word] = counts[word] + 1
end

local paused, rebuild = unpack(call('HMGET', K.queue(queue_name), F.paused, F.rebuild))
if paused then count(ms > tonumber(string.match(rebuild or '', ' (%d+)$') or 0) and 'paused' or 'rebuilding') end
for i = topics_from, #ARGV do
  local topic = ARGV[i]
  local cursor = call('HGET', K.cursors(queue_name), topic)
  if not cursor then
    count('cursor_missing')
  elseif (paused or queue.topic) == '' and not call('ZSCORE', K.behind(queue_name), topic) then
    local last = call('XREVRANGE', K.log(topic), '+', '-', 'COUNT', 1)[1]
    if last and order_of(last[1]) > order_of(string.match(cursor, '^%S+')) then
      count('behind_missing')
      if repair == '1' then
        call('ZADD', K.behind(queue_name), 0, topic)
        add_due(ms, 'dispatch ' .. queue_name, 'NX')
      end
    end
  end
end
if call('HEXISTS', K.leases(queue_name), V.anchor) == 0 then
  count('anchor_missing')
  if repair == '1' then call('HSET', K.leases(queue_name), V.anchor, '') end
end
local in_runs, broken = count_runs(queue_name)
if in_runs and (broken[1] or in_runs ~= (queue.in_runs or 0)) then
  count('run_wrong')
  if repair == '1' then
    call_in_batches('ZREM', K.runs(queue_name), broken)
    call('HSET', K.queue(queue_name), F.in_runs, in_runs)
    queue.in_runs = in_runs
  end
end
if queue.lease > 0 and number_leased(queue_name) > 0 and not call('ZSCORE', K.due(), 'leases ' .. queue_name) then
  count('pass_missing')
  if repair == '1' then add_due(ms, 'leases ' .. queue_name) end
end
for i = #out, 1, -1 do table.insert(out, i + 1, counts[out[i]]) end
return out
