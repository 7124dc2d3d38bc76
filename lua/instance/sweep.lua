--- sweep: do what is due: lease passes, messages whose time has come or whose life is over, records, dispatches left over, what
--- nobody uses or watches any more, windows of deduplication that are over.
--- ARGV now
--- GIVES {1 when more is due already else 0, ms until the next entry or -1}
--- FLAGS allow-oom
--- @include clock, fail, lease_pass, group_review, rates(), bound_release(), filter_indexes, watchers, due_messages, expiry_pass(), record_ends(), log_catch_up(), deferred_entries(), deduplication(), timetable
-- Safe to call at any time by any number of callers: each entry is taken off before it is acted on.
local ms = clock_ms(now)
local work, groups, readied, names = 0, {}, {}, {}

-- Ends of records are written into their topic's log. A worker, who sweeps where nobody else does, may not do that: they
-- wait for somebody who may.
local function may_write(kind, name)
  return kind ~= 'records' or redis.acl_check_cmd('XADD', K.log(name), '*', F.body, '')
end

-- Before anything else is done, so that each message is somewhere.
local function enter_due()
  for name, group in pairs(groups) do
    enter_ready(load_queue(name), group.refs)
    for field, count in pairs(group.counts) do call('HINCRBY', K.queue(name), field, count) end
  end
  groups = {}
end

for _, member in ipairs(call('ZRANGE', K.due(), '-inf', ms, 'BYSCORE', 'LIMIT', 0, V.batch)) do
  if work >= V.batch then break end
  local kind, name, ref = string.match(member, '^(%S+) (%S+) ?(.*)$')
  if not may_write(kind, name) then kind = 'left' else call('ZREM', K.due(), member) end
  work = work + 1
  if kind ~= 'ready' and kind ~= 'scheduled' then enter_due() end
  if kind == 'left' then
    -- It stays in the timetable.
  elseif not string.find(' expirations records deferred departed windows ', ' ' .. kind .. ' ', 1, true) and not load_queue(name) then
    -- Whoever wrote it did not know that the queue was removed.
  elseif kind == 'ready' or kind == 'scheduled' then
    local group, field = groups[name] or {refs = {}, counts = {}}, kind == 'ready' and F.delayed or F.scheduled
    groups[name] = group
    if not readied[name] then readied[name], names[#names + 1] = true, name end
    group.refs[#group.refs + 1] = ref
    group.counts[field] = (group.counts[field] or 0) - 1
  elseif kind == 'leases' then
    pass_leases(name, ms)
    work = work + V.batch
  elseif kind == 'groups' then
    review_definition(load_queue(name), ref, ms)
    work = work + V.batch
  elseif kind == 'rates' then
    dispatch_or_defer(name, ms, V.batch, nil, true)
    rates().forget_full_buckets(load_queue(name))
    work = work + V.batch
  elseif kind == 'affinity' then
    -- Bindings that are over, or those to a subscription that left the queue.
    if ref ~= '' then bound_release().release_line(load_queue(name), ref) end
    dispatch_or_defer(name, ms, V.batch, nil, true)
    work = work + V.batch
  elseif kind == 'expiry' then
    expiry_pass().pass_expiry(name, ms)
    work = work + V.batch
  elseif kind == 'expirations' then
    expiry_pass().pass_expirations(name, ms)
    work = work + V.batch
  elseif kind == 'records' then
    record_ends().pass_records(name, ms)
    work = work + V.batch
  elseif kind == 'filter' then
    forget_filter(name, ref, ms)
  elseif kind == 'read' then
    if not log_catch_up().catch_up_with_logs(load_queue(name), ms) then add_due(ms, member, 'NX') end
    work = work + V.batch
  elseif kind == 'deferred' then
    deferred_entries().pass_deferred(name, ms)
    work = work + V.batch
  elseif kind == 'windows' then
    deduplication().end_windows(name, ms, V.batch)
    deduplication().schedule_windows(name, ms)
    work = work + V.batch
  elseif kind == 'departed' then
    call('HDEL', K.departed(), name)
  elseif kind == 'watch' then
    call('HDEL', K.queue(name), F.watched)
    call('DEL', K.events(name))
    local queue = load_queue(name)
    if queue then queue.watched = false end
  else
    dispatch_or_defer(name, ms, V.batch, nil, true)
    work = work + V.batch
  end
end
enter_due()
for _, name in ipairs(names) do dispatch_or_defer(name, ms, V.batch) end
local next_due = call('ZRANGE', K.due(), 0, 0, 'WITHSCORES')
if #next_due == 0 then return {0, -1} end
local wait = tonumber(next_due[2]) - ms
return {wait <= 0 and 1 or 0, math.max(wait, 0)}
