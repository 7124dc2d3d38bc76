--- heartbeat: a client's sign of life for its subscriptions, and how long some of their messages took.
--- ARGV now, patience, latencies, ids...
--- GIVES ms now, ms at which the first entry of the timetable is due or '', and of each subscription how many messages it is leased, '' where it is gone
--- FLAGS allow-oom
--- @include clock, fail, latency_buckets
-- latencies: a line for each queue of which something was measured since the last one; else ''.
local ms = clock_ms(now)
local reply = {string.format('%.0f', ms), call('ZRANGE', K.due(), 0, 0, 'WITHSCORES')[2] or ''}
for i = ids_from, #ARGV do
  local is_gone = call('ZADD', K.subscriptions(), 'XX', 'CH', ms + patience, ARGV[i]) == 0
    and not call('ZSCORE', K.subscriptions(), ARGV[i])
  reply[#reply + 1] = is_gone and '' or call('HGET', K.subscription(ARGV[i]), F.leased) or '0'
end
if latencies ~= '' then add_all_latencies(latencies, ms) end
return reply
