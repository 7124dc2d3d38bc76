--- read_news: tell a coordinator what has happened at instances since it looked last, many in one call, and let it rest.
--- ARGV now, rare, instances...
--- GIVES {ms, keys of the server or -1, {number, ms until the first entry of the timetable or -1, what has happened...}...}, where something has
--- FLAGS allow-oom, allow-cross-slot-keys
--- @include clock, fail
-- rare: 1 to look also at what is no matter of a second. instances: each its name; the version of its catalog that is known; its `resting`; which clients
-- came last, as it was answered; a number of streams, their keys, and the last
-- ID seen in each; a number of queues that several instances have, and their names. number: the place in this list. What has
-- happened: `again` and the ms until `names`, `clients` or `rebuilds` wait, told of one that rests long; `catalog` changed; `names`, `clients`, `rebuilds` wait for their duty; `remote`: messages wait that others own, of a queue
-- that somebody here is subscribed to; `lost`: the instance is not there, or has another format; `refused`: this user may not look; `came` and which
-- clients came last; of a stream that goes on, its place and last ID.
local ms = clock_ms(now)
local own, i, number, found = P, instances_from, 0, {ms, -1}

local function ask(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end

-- When the time of somebody in a sorted set comes, ms from now on.
local function time_until(key)
  local first = ask('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first and first[1] and first[2] - ms or math.huge
end

-- New logs are new keys.
found[2] = ask('DBSIZE') or -1

while i <= #ARGV do
  local name, version, resting, clients, streams = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
  i = i + 1
  local news, wait = {}, -1
  local rests_long = resting >= '3'
  local horizon = rests_long and V.long_rest_horizon or V.rest_horizon
  P = '{' .. name .. '}'
  number = number + 1
  local stored = ask('HMGET', K.instance(), F.format, F.catalog, F.resting, F.registered, F.heard)
  if not stored then
    news[1] = 'refused'
  elseif stored[1] ~= V.format and stored[1] ~= V.format_of_groups then
    news[1] = 'lost'
  else
    -- Before it is looked: what comes later wakes.
    if stored[3] ~= resting then ask('HSET', K.instance(), F.resting, resting) end
    if stored[2] ~= version then news[1] = 'catalog' end
    local came = (stored[4] or '') .. ' ' .. (stored[5] and ask('HLEN', K.clients()) or '')
    if came ~= clients then news[#news + 1], news[#news + 2] = 'came', came end
    local first = ask('ZRANGE', K.due(), 0, 0, 'WITHSCORES')
    if first and first[1] and tonumber(first[2]) < ms + horizon then wait = math.max(first[2] - ms, 0) end
    if rare == '1' then
      local soon = horizon
      for what, left in pairs({
        clients = time_until(K.subscriptions()),
        names = time_until(K.wanted()),
        rebuilds = time_until(K.rebuilding()),
      }) do
        if left <= 0 then news[#news + 1] = what else soon = math.min(soon, left) end
      end
      if rests_long and soon < horizon then news[#news + 1], news[#news + 2] = 'again', tostring(math.ceil(soon)) end
    end
    if streams > 0 then
      local places = {}
      for k = 1, streams do places[ARGV[i + 3 + k]] = k end
      for _, read in ipairs(ask('XREAD', 'COUNT', 1, 'STREAMS', unpack(ARGV, i + 4, i + 3 + 2 * streams)) or {}) do
        local last = ask('XREVRANGE', read[1], '+', '-', 'COUNT', 1)
        news[#news + 1], news[#news + 2] = places[read[1]], last[1] and last[1][1] or read[2][1][1]
      end
    end
    local at = i + 4 + 2 * streams
    for k = at + 1, at + ARGV[at] do
      if (ask('ZCARD', K.remote(ARGV[k])) or 0) > 0 and (ask('SCARD', K.members(ARGV[k])) or 1) > 0 then
        news[#news + 1] = 'remote'
        break
      end
    end
  end
  i = i + 4 + 2 * streams
  i = i + 1 + ARGV[i]
  if news[1] or wait >= 0 then found[#found + 1] = {number, wait, unpack(news)} end
end
P = own
return found
