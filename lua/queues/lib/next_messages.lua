--- next_messages: the next messages of a queue in order: first what is ready, then straight from the logs.
-- Lists: refs, fields, deliveries (texts), ids, false of what was ready; whether it was cut short, and whether it saw the end of every log; special:
-- some have fields of their own that say when, and for whom. What this returns has left `ready` or is behind the cursor. With `as_run` it
-- may be `entries` of the log in their place, see `read_log`.
--- @include topic_merge, journal, watchers, lease_runs, ready_entries()

-- How many more messages may become active. Without a target depth there is no limit to look at.
local function places_below_target_depth(queue)
  local active = call('ZCARD', K.ready(queue.name)) + call('ZCARD', K.sorted(queue.name, V.none))
    + (call('HGET', K.queue(queue.name), F.delayed) or 0)
  if not queue.once then active = active + number_leased(queue.name) end
  return math.max(queue.depth - active, 0)
end

local function empty_messages()
  return {refs = {}, fields = {}, deliveries = {}, ids = {}, cut = false, exhausted = false, special = false, returned = 0}
end

-- What is ready has no score: the order is that of the refs. With a barrier that waits, only what came before it.
local function first_ready(queue, wanted, barrier)
  if not barrier then return call('ZRANGE', K.ready(queue.name), 0, wanted - 1) end
  return call('ZRANGE', K.ready(queue.name), '-', '(' .. barrier, 'BYLEX', 'LIMIT', 0, wanted)
end

-- One step; true when another may find more, because some of these were missing from their logs.
local function read_ready(queue, out, wanted, budget)
  local refs = first_ready(queue, wanted, budget.barrier)
  if #refs == 0 then return false end
  local attempts = call('HMGET', K.attempts(queue.name), unpack(refs))
  local taken, missing, entries, from, last, reader = {}, {}, {}, 1, 0, ready_entries()
  for i, ref in ipairs(refs) do
    if i > last then
      entries, last = reader.entries_of_neighbours(refs, i)
      from = i
    end
    local entry = entries[i - from + 1]
    taken[i] = ref
    if entry then
      local deliveries = attempts[i] and string.match(attempts[i], '^%d+') or 0
      local number, fields = #out.refs + 1, entry[2]
      out.refs[number], out.fields[number], out.deliveries[number] = ref, fields, string.format('%d', deliveries + 1)
      out.ids[number] = false
      if fields[3] and not out.special then out.special = has_delivery_options(fields) end
      budget.bytes = budget.bytes + reader.bytes_of_fields(fields) * budget.weight
      if budget.bytes > V.bytes then break end
    else
      missing[#missing + 1] = ref
    end
  end
  call('ZREM', K.ready(queue.name), unpack(taken))
  if #missing > 0 then
    call('HDEL', K.attempts(queue.name), unpack(missing))
    if queue.sorted then call('HDEL', K.places(queue.name), unpack(missing)) end
    write_journal(queue.name, V.missing, '', missing, '')
    notify_watchers(queue, missing)
  end
  return #missing > 0
end

local function something_waits(queue)
  if call('EXISTS', K.ready(queue.name), K.behind(queue.name)) > 0 then return true end
  return queue.topic ~= '' and #open_front(queue, queue.topic, 1).entries > 0
end

-- as_run: all that is read may become one lease. front: the log's, of a queue with one topic, where that is open already. limits: nil, or from_log: how many of the wanted ones may come straight from the logs; unwritten: how many are active
-- and in no key yet; weight: of each byte, as `V.bytes` are counted; barrier: what came behind it stays in `ready`; read: what is
-- ready stays, and the log is looked through alone: this notes what was met, and nothing is changed.
-- The first `returned` ones were ready. Beyond the target depth nothing is read, so nothing more is there until
-- something is settled.
local function next_messages(queue, wanted, limits, as_run, front)
  local out, budget, reading = empty_messages(), {bytes = 0, weight = 1}, wanted
  if limits then reading, budget.weight, budget.barrier, budget.read = limits.from_log, limits.weight, limits.barrier, limits.read end
  local unwritten = limits and limits.unwritten or 0
  local deep = queue.depth > 0 and math.max(places_below_target_depth(queue) - unwritten, 0) or reading
  -- Mostly there is neither: one look for both, if nobody has looked yet.
  -- Behind what is listed nothing is noted, if nobody else has noted anything.
  local is_known = budget.read and string.find(queue.listed or '', ' ' .. V.listing_whole .. ' %S+$')
  local some = not queue.is_bare and not is_known and call('EXISTS', K.ready(queue.name), K.ahead(queue.name)) > 0
  queue.is_bare = nil
  for _ = 1, some and not budget.read and 4 or 0 do
    out.cut = read_ready(queue, out, wanted - #out.refs, budget)
    if not out.cut or #out.refs == wanted or budget.bytes >= V.bytes then break end
  end
  out.returned = #out.refs
  local last = math.min(wanted, out.returned + math.min(reading, deep))
  if not out.cut and queue.topic ~= '' and #out.refs < last and budget.bytes < V.bytes then
    if as_run and not some then out.entries = {} end
    read_log(queue, out, last, budget, some and call('HLEN', K.ahead(queue.name)) or 0, front)
  end
  local more = not out.cut and queue.topic == ''
  while more and #out.refs < last and budget.bytes < V.bytes do more = read_topics(queue, out, last, budget) end
  if queue.depth > 0 and deep <= number_read(out) - out.returned then out.exhausted = true end
  out.cut, out.bytes = out.cut or budget.bytes >= V.bytes, budget.bytes
  return out
end
