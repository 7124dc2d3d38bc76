--- heartbeat: a client's sign of life for its subscriptions, and how long some of their messages took.
--- ARGV now, patience, latencies, ids...
--- GIVES ms now, then the subscriptions that do not exist any more
--- FLAGS allow-oom
--- @include clock, fail, latency_buckets
-- latencies: a line for each queue of which something was measured since the last one; else ''.
local ms = clock_ms(now)
local gone = {string.format('%.0f', ms)}
for i = ids_from, #ARGV do
  if call('ZADD', K.subscriptions(), 'XX', 'CH', ms + patience, ARGV[i]) == 0
      and not call('ZSCORE', K.subscriptions(), ARGV[i]) then
    gone[#gone + 1] = ARGV[i]
  end
end
if latencies ~= '' then add_all_latencies(latencies, ms) end
return gone
