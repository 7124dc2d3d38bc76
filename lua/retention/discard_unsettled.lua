--- discard_unsettled: settle as missing what a topic's retention gives up though queues have not settled it: one bounded step.
--- ARGV now, version, topic, age, size, count, after, passed
--- FAIL CATALOG_CHANGED
--- GIVES {where to go on or '' at the end, entries passed so far, messages that queues lost}
--- FLAGS allow-oom
--- @include clock, fail, catalog, trim_bound, unleased_settlement, retention_policy, message_life, timetable
-- Nothing is removed here: what no queue needs any more, `trim_log` removes. after, passed: '0-0' and 0 at first. What is leased
-- stays until it comes back.
local ms = clock_ms(now)
check_catalog(version)
local queues = fed_queues(topic)
local policy = open_policy(topic, age, size, count, tonumber(passed), ms)
local most = math.max(2, math.min(V.batch, math.floor(V.batch / math.max(#queues, 1))))
local ids, ended, fields = entries_given_up(K.log(topic), policy, after, policy_end(policy), most)
local refs, make_ref, lost = {}, ref_maker(topic), 0
for i, id in ipairs(ids) do refs[i] = make_ref(id) end

-- A queue reads its log without a gap: only what follows its cursor at once can be passed over.
local function pass_over(queue)
  local id, read = string.match(call('HGET', K.cursors(queue.name), topic) or '', '^(%S+) (%d+)$')
  local from = 1
  while ids[from] and order_of(ids[from]) <= order_of(id) do from = from + 1 end
  if not ids[from] or call('XRANGE', K.log(topic), '(' .. id, '(' .. ids[from], 'COUNT', 1)[1] then return 0 end
  local passed_over = {}
  for i = from, #ids do
    local _, _, addressed = delivery_options_of(fields[i])
    local known = call('HDEL', K.ahead(queue.name), refs[i]) == 1
    if not known and (not addressed or addressed == queue.name) then passed_over[#passed_over + 1] = refs[i] end
  end
  call('HSET', K.cursors(queue.name), topic, ids[#ids] .. ' ' .. string.format('%d', read + #ids - from + 1))
  if not passed_over[1] then return 0 end
  write_journal(queue.name, V.missing, V.retention, passed_over, '')
  notify_watchers(queue, passed_over)
  return #passed_over
end

local function take_from(queue)
  local found, number = {}, 0
  for i = 1, #ids do
    local where = where_is(queue, refs[i])
    if where and where ~= 'waiting' and where ~= 'leased' and where ~= 'settled' then
      found[refs[i]], number = where, number + 1
    end
  end
  if number > 0 then settle_unleased(queue, V.missing, V.retention, refs, found, '') end
  number = number + pass_over(queue)
  lost = lost + number
  -- What it lost may have stood before a barrier, or in the active part.
  if number > 0 then add_due(ms, 'dispatch ' .. queue.name, 'NX') end
end

for _, queue in ipairs(#ids > 0 and queues or {}) do
  local loaded = queue.known and load_queue(queue.name)
  -- One that is being rebuilt does not know what it has settled.
  if loaded and loaded.topic ~= V.nowhere then take_from(loaded) end
end
return {ended and '' or ids[#ids], passed + #ids, lost}
