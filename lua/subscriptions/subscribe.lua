--- subscribe: register a consumer's wish; its messages come by `take` or into its inbox.
--- ARGV now, version, client, asked, filter, tree, pattern, patience, queues...
--- FAIL CATALOG_CHANGED, UNKNOWN_QUEUE, TOO_MANY_FILTERS, BINARY_MESSAGES, GROUPED_QUEUE
--- GIVES {subscription, effective max_backlog, ms now}
--- FLAGS allow-oom
--- @include clock, fail, catalog, membership, action_events, session_numbers, timetable
-- version: the catalog that `pattern` was matched against, '' without a pattern. patience: ms until a subscription
-- whose client shows no sign of life is gone. filter: its name and its tree, or `none` and ''.
-- asked: how many; behind it ` bell` where it has no room but what visits lend it, and a bell, which is silent until the first one.
-- client: `<client>/<number of its request>`; asked again after a lost reply, the subscription that was made is answered.
local ms = clock_ms(now)

-- Names rise with registration.
local function named(number)
  return string.format(tonumber(number) < 100000000 and 's%08d' or 's%012d', number)
end

-- Gives the next number, which no other subscription had, known or lost; the last ones are kept, newest first.
local function next_number(known)
  local number = number_after(string.match(known, '^%d+') or 0, ms)
  local kept = {number}
  for each in string.gmatch(known, '%d+') do
    if #kept < 32 then kept[#kept + 1] = each end
  end
  call('HSET', K.instance(), F.registered, table.concat(kept, ' '))
  return number
end

local number_asked, bell = string.match(asked, '^(%d+) ?(%l*)$')
local made = call('HGET', K.instance(), F.registered) or ''
for number in string.gmatch(made, '%d+') do
  local id = named(number)
  local fields = call('HMGET', K.subscription(id), F.client, F.max)
  if fields[1] == client then return {id, bell == '' and tonumber(fields[2]) or refresh_subscription(id), ms} end
end
if version ~= '' then check_catalog(version) end
check_queues(filter, {unpack(ARGV, queues_from)})
local id = named(next_number(made))
call('HSET', K.subscription(id), F.queues, '', F.asked, number_asked, F.max, 0, F.leased, 0, F.client, client)
if bell ~= '' then
  call('HSET', K.subscription(id), F.bell, '0')
  call('HSET', K.instance(), F.format, V.format_of_groups)
end
if filter ~= V.none then call('HSET', K.subscription(id), F.filter, filter, F.tree, tree) end
for i = queues_from, #ARGV do join_queue(id, ARGV[i]) end
if pattern ~= '' then
  call('HSET', K.patterns(), id, pattern)
  change_catalog()
end
call('ZADD', K.subscriptions(), ms + patience, id)
wake_coordinator('clients')
if has_listeners() then
  call('HSETNX', K.clients(), string.match(client, '^(.*)/') or client, ms)
  emit_subscription_event('subscribe', client, table.concat({unpack(ARGV, queues_from)}, ' '), pattern ~= '' and pattern, number_asked, tree)
end
local max = refresh_subscription(id)
-- A barrier may have waited for somebody to come; messages are taken, not pushed at once.
for i = queues_from, #ARGV do
  if call('EXISTS', K.held(ARGV[i])) == 1 then add_due(ms, 'dispatch ' .. ARGV[i], 'NX') end
end
return {id, max, ms}
