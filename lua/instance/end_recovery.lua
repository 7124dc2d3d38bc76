--- end_recovery: let queues go on that a new incarnation held; with the last of them the incarnations before it end.
--- ARGV now, word, queues...
--- GIVES how many are held still, -1 where the instance does not recover under that word
--- FLAGS allow-oom
--- @include clock, fail, recovery, received_positions, deferred_entries, ended_origin, timetable
-- Of an incarnation that is over there is no more than is here: what is told of other messages of it is waited for no more,
-- here and wherever links carry that.
local ms, left = clock_ms(now), 0
if call('HGET', K.instance(), F.recovering) ~= word then return -1 end
for i = queues_from, #ARGV do
  if call('HDEL', K.queue(ARGV[i]), F.recovering) == 1 then add_due(ms, 'dispatch ' .. ARGV[i], 'NX') end
end

local function end_former(topic)
  for i = 2, #names_of_instance().former, 2 do
    local origin = own_names.former[i]
    if received_of('log ' .. topic, origin) ~= V.last_id then
      note_received('log ' .. topic, origin, V.last_id, '-')
      drop_deferred_up_to(topic, origin, V.last_id)
      pass_on_end(topic, origin, '', ms)
    end
  end
end

local shared = {}
for _, name in ipairs(call('HKEYS', K.queues())) do
  local owner, held = unpack(call('HMGET', K.queue(name), F.owner, F.recovering))
  shared[name] = owner
  if held then left = left + 1 end
end
if left > 0 then return left end
local routes = call('HGETALL', K.routes())
for i = 1, #routes, 2 do
  local is_shared = false
  for name in string.gmatch(routes[i + 1], '[^%s*]+') do is_shared = is_shared or shared[name] end
  if is_shared then end_former(routes[i]) end
end
call('HDEL', K.instance(), F.recovering)
call('DEL', K.recovery())
change_catalog()
return 0
