--- catalog: names are matched against patterns outside the server; the version tells whether that is still true.
--- @include queue

local function check_catalog(version)
  local found = call('HGET', K.instance(), F.catalog)
  if found ~= version then fail(E.CATALOG_CHANGED, {expected = version, found = found}) end
end

local function change_catalog()
  call('HINCRBY', K.instance(), F.catalog, 1)
end

-- The queue reads the topic from its first entry on. In routes a queue that may read several topics has a star: it has
-- to be told which of them have something for it.
local function feed(topic, queue)
  if call('HSETNX', K.cursors(queue), topic, '0-0 0') == 0 then return end
  local route = call('HGET', K.routes(), topic) or ''
  if string.sub(route, 1, 1) == '>' then route = '' end
  local alone = load_queue(queue).topic ~= ''
  call('HSET', K.routes(), topic, (route == '' and '' or route .. ' ') .. (alone and '' or '*') .. queue)
  if not alone and call('EXISTS', K.log(topic)) == 1 then call('ZADD', K.behind(queue), 'NX', 0, topic) end
end
