--- begin_incarnation: begin a new incarnation of this instance: what it has recorded so far belongs to the last one from now on.
--- ARGV now, incarnation
--- GIVES {origin, queues to be rebuilt...}
--- FLAGS allow-oom
--- @include clock, fail, catalog, paused, ref
-- Nothing is written anew: the last ID tells whose an entry without a source is. What was ready is owned by nobody, so the queues that
-- share their messages are emptied, and read nothing until they are rebuilt. Called again with the same word it changes nothing.
local ms = clock_ms(now)
local name, former, known = unpack(call('HMGET', K.instance(), F.name, F.origin, F.former))
local origin, last, shared = name .. '.' .. incarnation, call('GET', K.clock()) or '0-0', {}
for _, queue_name in ipairs(call('HKEYS', K.queues())) do
  local queue = load_queue(queue_name)
  if queue and queue.owner then shared[#shared + 1] = queue end
end

local streams = {}
for _, topic in ipairs(call('HKEYS', K.topics())) do streams[#streams + 1] = K.log(topic) end
for _, queue in ipairs(shared) do streams[#streams + 1] = K.journal(queue.name) end

-- IDs of the new incarnation are above all of the last one's, in every stream.
local function end_last()
  local at = string.format('%.0f-0', ms)
  if order_of(at) > order_of(last) then last = at end
  for pass = 1, 2 do
    for _, stream in ipairs(streams) do
      local info, ended = redis.pcall('XINFO', 'STREAM', stream), nil
      for k = 1, #info, 2 do
        if info[k] == 'last-generated-id' then ended = info[k + 1] end
      end
      if ended and order_of(ended) > order_of(last) then last = ended end
      if ended and pass == 2 then call('XSETID', stream, last) end
    end
  end
  call('SET', K.clock(), last)
end

local function empty(queue)
  local keys = {K.ready(queue.name), K.held(queue.name), K.places(queue.name), K.asked(queue.name), K.rebuilt(queue.name)}
  for filter in string.gmatch(queue.sorted or '', '%S+') do keys[#keys + 1] = K.sorted(queue.name, filter) end
  call('UNLINK', unpack(keys))
  call('HSETNX', K.queue(queue.name), F.paused, queue.topic)
  call('HSET', K.queue(queue.name), F.compiled, paused_form(call('HGET', K.queue(queue.name), F.compiled)))
  -- Whoever comes first rebuilds it.
  keep_rebuilding(queue.name, origin, ms - 1)
end

if former ~= origin then
  end_last()
  call('HSET', K.instance(), F.origin, origin, F.former, (known and known .. ' ' or '') .. last .. ' ' .. former)
  for _, queue in ipairs(shared) do empty(queue) end
  change_catalog()
end
local names = {}
for i, queue in ipairs(shared) do names[i] = queue.name end
return {origin, unpack(names)}
