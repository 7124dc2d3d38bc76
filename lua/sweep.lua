--- sweep: do what is due: lease passes, delays that are over, dispatches left over, what nobody uses or watches any more.
--- ARGV now
--- GIVES {1 when more is due already else 0, ms until the next entry or -1}
--- FLAGS allow-oom
--- @include clock, fail, pass, filters, events
-- Safe to call at any time by any number of callers: each entry is taken off before it is acted on.
local ms = clock_ms(now)
local work, readied = 0, {}
for _, member in ipairs(call('ZRANGE', K.due(), '-inf', ms, 'BYSCORE', 'LIMIT', 0, V.batch)) do
  if work >= V.batch then break end
  local kind, name, ref = string.match(member, '^(%S+) (%S+) ?(.*)$')
  call('ZREM', K.due(), member)
  if kind == 'ready' then
    call('ZADD', K.ready(name), 0, ref)
    call('HINCRBY', K.queue(name), F.delayed, -1)
    note_changes(load_queue(name), {ref})
    if not readied[name] then readied[name], readied[#readied + 1] = true, name end
    work = work + 1
  elseif kind == 'leases' then
    pass_leases(name, ms)
    work = work + V.batch
  elseif kind == 'filter' then
    forget_filter(name, ref, ms)
  elseif kind == 'watch' then
    call('HDEL', K.queue(name), F.watched)
    call('DEL', K.events(name))
    local queue = load_queue(name)
    if queue then queue.watched = false end
    work = work + 1
  else
    dispatch_or_defer(name, ms, V.batch, nil, true)
    work = work + V.batch
  end
end
for _, name in ipairs(readied) do dispatch_or_defer(name, ms, V.batch) end
local next_due = call('ZRANGE', K.due(), 0, 0, 'WITHSCORES')
if #next_due == 0 then return {0, -1} end
local wait = tonumber(next_due[2]) - ms
return {wait <= 0 and 1 or 0, math.max(wait, 0)}
