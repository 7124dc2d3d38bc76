--- trim_log: remove from a topic's log what its retention gives up and nobody needs: one bounded step of a walk.
--- ARGV now, version, topic, age, size, count, after, passed, dry, readers...
--- FAIL CATALOG_CHANGED
--- GIVES {where to go on or '' at the end, left standing, given up, removed, ID needed first or '', who needs it}
--- FLAGS allow-oom
--- @include clock, fail, catalog, log_index(), trim_walk, trim_bound, needed_entries, pinned_entries, stream_readers, retention_policy, cursor_skip, trimmed_entries
-- age: ms, size: bytes, count: entries; '' none. after: '' goes on with the walk that is kept; else an ID, with `passed`
-- entries from the head up to there. dry: 1 removes nothing. readers: see `read_readers`; the catalog is `version`'s still.
local ms = clock_ms(now)
check_catalog(version)
local log = K.log(topic)
local walk = after == '' and open_walk('log ' .. topic, ms) or {at = after, kept = tonumber(passed)}
local policy = open_policy(topic, age, size, count, walk.kept, ms)
local oldest = call('XRANGE', log, '(' .. walk.at, '+', 'COUNT', 1)[1]
-- Mostly nothing is given up: then nobody need be asked.
local some = oldest and gives_up(policy, oldest[1])
policy.rank = walk.kept
local queues, busy, unhandled, bound, ids, ended, entries, readers = {}, {}, {}, {last = '+', who = ''}, {}, true, {}, {}
if some then
  queues = fed_queues(topic)
  local rest = dry == '0' and V.batch or 0
  for _, queue in ipairs(queues) do
    if rest > 0 then rest = rest - pass_settled(queue, topic, rest) end
  end
  busy = busy_queues(queues)
  bound = open_bound(topic, queues, ms)
  readers = read_readers(readers_from)
  lower_to_readers(bound, topic, queues, readers, unhandled)
  local last = policy_end(policy)
  if bound.order and (last == '+' or bound.order <= order_of(last)) then last = bound.last end
  local most = math.max(2, math.min(V.batch, math.floor(8 * V.batch / math.max(#busy, 1))))
  ids, ended, entries = entries_given_up(log, policy, walk.at, last, most)
end

-- Index -> who needs it.
local function needed_among()
  local needed, refs, make_ref = {}, {}, ref_maker(topic)
  for i = 1, #ids do
    refs[i] = make_ref(ids[i])
    needed[i] = unhandled[refs[i]]
  end
  for _, queue in ipairs(busy) do mark_needed(queue, refs, needed) end
  if call('EXISTS', K.pins(topic)) == 1 then mark_pinned(topic, ids, needed) end
  return needed
end

local needed, kept, pin, removed = {}, 0, nil, 0
if #ids > 0 then
  needed = needed_among()
  for i = #ids, 1, -1 do
    if needed[i] then kept, pin = kept + 1, ids[i] .. ' ' .. needed[i] end
  end
  removed = #ids - kept
  if dry == '0' then
    local gone = remove_unneeded(log, ids, needed)
    if gone[1] then
      note_removed(topic, gone[#gone])
      log_index().shorten_index(log)
      forget_trimmed(topic, queues, ids, entries, needed, least_same(topic, readers))
      -- Whose life was to end need not be looked at then.
      if call('EXISTS', K.expirations(topic)) == 1 then call('ZREM', K.expirations(topic), unpack(gone)) end
    end
  end
  walk.at = ids[#ids]
end
if ended and not pin then
  -- The end may be somebody's need, and not the policy's.
  local beyond = call('XRANGE', log, '(' .. walk.at, '+', 'COUNT', 1)[1]
  if beyond and bound.last ~= '+' and gives_up(policy, beyond[1]) then pin = beyond[1] .. ' ' .. bound.who end
end
local former = walk.kept
walk.kept = walk.kept + kept
if walk.name then
  save_walk(walk, ended, ms)
  -- What the walk met first is what it tells of.
  local field = 'pin ' .. topic
  if former > 0 then
    pin = call('HGET', K.retention(), field) or pin
  elseif pin then
    call('HSET', K.retention(), field, pin)
  elseif ended then
    call('HDEL', K.retention(), field)
  end
end
local id, who = string.match(pin or ' ', '^(%S*) (.*)$')
return {ended and '' or walk.at, walk.kept, #ids, removed, id, who}
