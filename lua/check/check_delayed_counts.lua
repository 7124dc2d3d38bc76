--- check_delayed_counts: whether a queue's numbers of delayed and of scheduled messages are those of its entries in the timetable.
--- ARGV queue_name, repair
--- FAIL UNKNOWN_QUEUE
--- GIVES {1 if all of it was looked at else 0, delayed, counted, scheduled, counted, what changes with every change of them}
--- FLAGS allow-oom
--- @include fail, queue
if not load_queue(queue_name) then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local fields = call('HMGET', K.queue(queue_name), F.delayed, F.scheduled, F.returned, F.token, F.expired)
local delayed, scheduled = tonumber(fields[1] or 0), tonumber(fields[2] or 0)
local version = table.concat({
  delayed, scheduled, fields[3] or 0, fields[4] or 0, fields[5] or 0, call('GET', K.clock()) or '',
}, ' ')
if call('ZCARD', K.due()) > 4000 then return {0, delayed, -1, scheduled, -1, version} end
local found, prefix = {ready = 0, scheduled = 0}, queue_name .. ' '
for _, member in ipairs(call('ZRANGE', K.due(), 0, -1)) do
  local kind, rest = string.match(member, '^(%S+) (.*)$')
  if found[kind] and string.sub(rest, 1, #prefix) == prefix then found[kind] = found[kind] + 1 end
end
if repair == '1' and (found.ready ~= delayed or found.scheduled ~= scheduled) then
  call('HSET', K.queue(queue_name), F.delayed, found.ready, F.scheduled, found.scheduled)
end
return {1, delayed, found.ready, scheduled, found.scheduled, version}
