--- correct_read_count: how many entries a queue counts as read in a topic, more or fewer by so many; the cursor stays.
--- ARGV queue_name, topic, difference
--- GIVES 1
--- FLAGS allow-oom
--- @include fail
local id, number = string.match(call('HGET', K.cursors(queue_name), topic) or '', '^(%S+) (%-?%d+)$')
if id then call('HSET', K.cursors(queue_name), topic, id .. ' ' .. string.format('%.0f', math.max(number + difference, 0))) end
return 1
