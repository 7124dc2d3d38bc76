--- heartbeat: a client's sign of life for its subscriptions, and how long some of their messages took; for several clients in one call.
--- ARGV now, patience, latencies, ids...
--- GIVES ms now, ms at which the first entry of the timetable is due or '', and of each subscription how many messages it is leased and its effective max_backlog, '' where it is gone; of each further instance {the same from the second on}
--- FLAGS allow-oom, allow-cross-slot-keys
--- @include clock, fail, latency_buckets
-- latencies: a line for each queue of which something was measured since the last one; else ''. Behind the ids may stand others of the server's
-- instances, the same one too: each '', its name, latencies, ids.
local ms = clock_ms(now)
local own, i = P, ids_from

-- All of them are instances of this format before anything is written.
while i <= #ARGV do
  if ARGV[i] == '' then
    P = '{' .. ARGV[i + 1] .. '}'
    local stored = call('HGET', K.instance(), F.format)
    if stored ~= V.format and stored ~= V.format_of_groups then
      fail(E.FORMAT_MISMATCH, {found = stored, expected = V.format})
    end
    i = i + 2
  end
  i = i + 1
end
P = own

local function first_due() return call('ZRANGE', K.due(), 0, 0, 'WITHSCORES')[2] or '' end

-- What a subscription may hold, as `refresh_subscription` has it; of one with a bell that is not stored. Queues that `queue.lua` has loaded are
-- those of one instance.
local function effective_backlog(id, max, bell)
  if not bell then return max end
  local asked, queues = unpack(call('HMGET', K.subscription(id), F.asked, F.queues))
  local least = tonumber(asked)
  for name in string.gmatch(queues, '%S+') do
    -- The ninth number of schema.COMPILED: `room`.
    local room = string.match(call('HGET', K.queue(name), F.compiled) or '', '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)')
    least = math.min(least, tonumber(room or least))
  end
  return string.format('%d', least)
end

local reply = {string.format('%.0f', ms), first_due()}
local found, measured = reply, latencies
i = ids_from
while i <= #ARGV do
  local id = ARGV[i]
  if id == '' then
    if measured ~= '' then add_all_latencies(measured, ms) end
    P, measured = '{' .. ARGV[i + 1] .. '}', ARGV[i + 2]
    found = {first_due()}
    reply[#reply + 1] = found
    i = i + 2
  else
    local is_gone = call('ZADD', K.subscriptions(), 'XX', 'CH', ms + patience, id) == 0
      and not call('ZSCORE', K.subscriptions(), id)
    local leased, max, bell = unpack(call('HMGET', K.subscription(id), F.leased, F.max, F.bell))
    found[#found + 1] = is_gone and '' or (leased or '0') .. ' ' .. effective_backlog(id, max or '0', bell)
  end
  i = i + 1
end
if measured ~= '' then add_all_latencies(measured, ms) end
P = own
return reply
