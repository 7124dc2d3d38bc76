--- fan_out: after entries came into a log, serve the queues that it feeds and somebody is free for.

-- route: names of queues; one that reads several topics has `*` before it and is told that this one has something.
-- oldest: ms of the first new entry. deliver(queue, now, limit) serves one queue. Nobody free in a hundred plain queues is one look.
local function serve_queues(route, topic, oldest, now, limit, deliver)
  local names, frees = {}, {}
  local function serve()
    if #names == 1 or call('EXISTS', unpack(frees)) > 0 then
      for i = 1, #names do deliver(names[i], now, limit) end
    end
    names, frees = {}, {}
  end
  for star, name in string.gmatch(route, '(%*?)([^%s*]+)') do
    if star ~= '' then call('ZADD', K.behind(name), 'NX', oldest, topic) end
    names[#names + 1] = name
    frees[#frees + 1] = K.free(name, V.none)
    frees[#frees + 1] = K.filters(name)
    if #names == 100 then serve() end
  end
  if #names > 0 then serve() end
end
