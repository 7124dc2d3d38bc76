--- browse_step: messages of one source of a queue, judged by a filter, in steps that are bounded like a dispatch.
--- @include judging_plan, unread_entry, next_messages, message_place, set_rank, lease_runs

local function open_browse(queue, filter)
  local browse = {queue = queue, plan = load_plan(queue), available = 0, found = {}, filtered = filter ~= ''}
  browse.plan.trees.browse = filter
  return browse
end

local function is_browse_over(browse)
  return browse.plan.spent.work >= V.sort_work
end

-- Adds a message when it matches: ref, fields, deliveries before, holder, score, member.
local function add_browsed(browse, ref, fields, holder, score, member, now)
  local attempts = call('HGET', K.attempts(browse.queue.name), ref)
  local deliveries = attempts and string.match(attempts, '^%d+') or '0'
  local document = document_of(browse.plan, ref, fields, tonumber(deliveries), now)
  local matches = not browse.filtered or judge(browse.plan, 'browse', document)
  browse.available = browse.available + 1
  charge_work(browse.plan, document, 1)
  if not matches then return end
  local out, number = browse.found, #browse.found
  out[number + 1], out[number + 2], out[number + 3] = ref, fields, deliveries
  out[number + 4], out[number + 5], out[number + 6] = holder, score, member
end

-- What is no more in its log is work too.
local function charge_missing(browse)
  browse.plan.spent.work = browse.plan.spent.work + 0.1
end

local function browse_zset(browse, key, after, now)
  local score, member = string.match(after, '^(%S+) (.*)$')
  local rank = score and rank_after(key, tonumber(score), member) or 0
  while not is_browse_over(browse) do
    local page = call('ZRANGE', key, rank, rank + 31, 'WITHSCORES')
    for i = 1, #page, 2 do
      local ref = ref_of_member(page[i])
      local topic, id = parse_ref(ref)
      local entry = call('XRANGE', K.log(topic), id, id)[1]
      if entry then add_browsed(browse, ref, entry[2], '', page[i + 1], page[i], now) end
      charge_missing(browse)
      after = page[i + 1] .. ' ' .. page[i]
      if is_browse_over(browse) then return after end
    end
    if #page < 64 then return '' end
    rank = rank + 32
  end
  return after
end

local function add_leased(browse, ref, value, now)
  local topic, id = parse_ref(ref)
  local entry = topic and call('XRANGE', K.log(topic), id, id)[1]
  if entry then add_browsed(browse, ref, entry[2], string.match(value, '^%d+ (%S+)'), '0', ref, now) end
end

-- A scan cannot stop inside a page, so its pages are of few messages, which may be large.
local function browse_scan(browse, cursor, now)
  if cursor == '' then
    cursor = '0'
    for i = 1, #(browse.queue.pushed or {}), 2 do add_leased(browse, browse.queue.pushed[i], browse.queue.pushed[i + 1], now) end
  end
  repeat
    local scanned = call('HSCAN', K.leases(browse.queue.name), cursor, 'COUNT', 1)
    for i = 1, #scanned[2], 2 do add_leased(browse, scanned[2][i], scanned[2][i + 1], now) end
    charge_missing(browse)
    cursor = scanned[1]
  until cursor == '0' or is_browse_over(browse)
  return cursor == '0' and 'run 0 ' or cursor
end

-- What is leased in runs comes behind all other leases: `run`, how far in the next one, the one before it.
local function browse_leases(browse, cursor, now)
  local at, behind = string.match(cursor, '^run (%d+) (.*)$')
  if not at then return browse_scan(browse, cursor, now) end
  at = tonumber(at)
  while not is_browse_over(browse) do
    local run = runs_behind(browse.queue.name, behind, 1)[1]
    if not run then return '' end
    local leases = leases_in_run(browse.queue.name, run)
    while 2 * at < #leases and not is_browse_over(browse) do
      add_leased(browse, leases[2 * at + 1], leases[2 * at + 2], now)
      charge_missing(browse)
      at = at + 1
    end
    if 2 * at >= #leases then at, behind = 0, run.member end
  end
  return 'run ' .. at .. ' ' .. behind
end

-- What was unread when the walk began, and is still available: unread, or read and in its place.
local function browse_log(browse, topic, after, until_id, now)
  local make_ref, step = ref_maker(topic), 4
  after = after == '' and '0-0' or after
  while not is_browse_over(browse) do
    local entries = call('XRANGE', K.log(topic), '(' .. after, until_id, 'COUNT', step)
    for _, entry in ipairs(entries) do
      local ref = make_ref(entry[1])
      local where = where_is(browse.queue, ref)
      local here = where == 'ready' or where == 'sorted' or where == 'held'
      if here or where == 'waiting' and will_enter(browse.queue, browse.plan, ref, entry[2], now) then
        add_browsed(browse, ref, entry[2], '', '0', ref, now)
      end
      browse.plan.spent.work = browse.plan.spent.work + 0.5
      after = entry[1]
      if is_browse_over(browse) then return after end
    end
    if #entries < step then return '' end
    step = math.min(step * 2, 64)
  end
  return after
end
