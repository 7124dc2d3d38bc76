--- catalog: names are matched against patterns outside the server; the version tells whether that is still true.
--- @include clock, queue, session_numbers, timetable

local function check_catalog(version)
  local found = call('HGET', K.instance(), F.catalog)
  if found ~= version then fail(E.CATALOG_CHANGED, {expected = version, found = found}) end
end

-- A version that a server lost is not given again to another catalog, as with sessions: whoever read that one reads this one.
-- Gives the version.
local function change_catalog()
  local version = number_after(tonumber(call('HGET', K.instance(), F.catalog) or 0), clock_ms(''))
  call('HSET', K.instance(), F.catalog, version)
  wake_coordinator('catalog')
  return version
end

-- The cursor of a queue that begins at a place of a log: `''` the first entry that is there, `now` behind the last, else as
-- it is given. What was trimmed is counted as read, so that the rest is what is unread.
local function beginning_cursor(topic, place)
  if place ~= '' and place ~= 'now' then return place end
  local info, facts = redis.pcall('XINFO', 'STREAM', K.log(topic)), {}
  for k = 1, #info, 2 do facts[info[k]] = info[k + 1] end
  if not facts['entries-added'] then return '0-0 0' end
  if place == '' then return '0-0 ' .. string.format('%.0f', facts['entries-added'] - facts['length']) end
  return facts['last-generated-id'] .. ' ' .. string.format('%.0f', facts['entries-added'])
end

-- The queue reads the topic from a place on, as `beginning_cursor` takes it. In routes a queue that may read several topics has a star: it
-- has to be told which of them have something for it. Gives the cursor, nil where it had one.
local function feed_queue(topic, queue, place)
  local cursor = beginning_cursor(topic, place)
  if call('HSETNX', K.cursors(queue), topic, cursor) == 0 then return nil end
  local route = call('HGET', K.routes(), topic) or ''
  if string.sub(route, 1, 1) == '>' then route = '' end
  local alone = (call('HGET', K.queue(queue), F.paused) or load_queue(queue).topic) ~= ''
  if not string.find(' ' .. string.gsub(route, '%*', '') .. ' ', ' ' .. queue .. ' ', 1, true) then
    call('HSET', K.routes(), topic, (route == '' and '' or route .. ' ') .. (alone and '' or '*') .. queue)
  end
  if not alone and call('EXISTS', K.log(topic)) == 1 then call('ZADD', K.behind(queue), 'NX', 0, topic) end
  return cursor
end
