--- heartbeat: a client's sign of life for its subscriptions.
--- ARGV now, patience, ids...
--- GIVES the subscriptions that do not exist any more
--- FLAGS allow-oom
--- @include clock, fail
local deadline = clock_ms(now) + patience
local gone = {}
for i = ids_from, #ARGV do
  if call('ZADD', K.subscriptions(), 'XX', 'CH', deadline, ARGV[i]) == 0
      and not call('ZSCORE', K.subscriptions(), ARGV[i]) then
    gone[#gone + 1] = ARGV[i]
  end
end
return gone
