--- pin_messages: keep single messages of a topic's log for somebody who will come back to them, or let them go.
--- ARGV topic, holder, wanted, ids...
--- GIVES 1
--- FLAGS allow-oom
--- @include fail, ref
-- holder: `<kind> <name>`. wanted: 1 to keep, 0 to let go.
for i = ids_from, #ARGV do
  local member = order_of(ARGV[i]) .. ' ' .. holder
  if wanted == '1' then call('ZADD', K.pins(topic), 0, member) else call('ZREM', K.pins(topic), member) end
end
return 1
