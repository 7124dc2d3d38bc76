--- queue: a queue's compiled definition.
--- @include open_run()
-- The numbers of schema.COMPILED, then its topic if it has one alone, then, where its messages are not JSON, a colon and their type, as body_formats.lua takes it.
local loaded_queues = {}

-- What definitions say, by their texts, and under `number` how many there are.
local known_definitions = {} -- kept over calls

-- What few queues have: schema.POLICY.
local function load_policy(queue, text)
  local life, model, redelivery, multiplier, longest, jitter = string.match(text, '^(%d+) (%d) (%d+) (%d+) (%d+) (%d+)$')
  queue.life, queue.model, queue.redelivery = tonumber(life), tonumber(model), tonumber(redelivery)
  queue.multiplier, queue.longest, queue.jitter = multiplier / 1000, tonumber(longest), jitter / 1000
end

-- Of the whole queue and of each group of it: the interval in which there is one more token, in microseconds, 0 of no rate; the burst.
local function load_rates(queue, text)
  local interval, burst, group_interval, group_burst = string.match(text, '^(%S+) (%d+) (%S+) (%d+)$')
  if tonumber(interval) > 0 then queue.rate = {interval = tonumber(interval), burst = tonumber(burst)} end
  if tonumber(group_interval) > 0 then queue.group_rate = {interval = tonumber(group_interval), burst = tonumber(group_burst)} end
end

-- rate, group_rate: nil where there is none, see rates.lua.
-- concurrency: how many messages of one group may be leased, nil of a queue without groups; on_failure: what a failure does to
-- the rest of its group; choice: by what groups take turns, nil where the oldest message goes first; batch: how many messages of
-- a group may be leased together, nil where each is leased by itself; affinity: for how many ms a delivery binds its group to its
-- subscription, nil where it does not. in_runs: how many messages are leased in runs (lease_runs.lua), nil for none.
-- pushed: in scripts that only read, refs and values in turn of what is leased in an open run; others end it (open_run.lua).
-- listed: up to where the log of a queue with groups is looked through behind its cursor, see listing.lua; nil where it is not. entered: the last ref
-- there, '' without: what is unread up to it has entered the queue.
-- is_bare: nothing is in its `ready`, `ahead` and `owners`, as `take` has found; nil: nobody has looked, or something may be there now.
-- sorted: the filters of a queue that judges its messages, `none` first; nil of a plain one. recovering: it is held, see
-- instance/lib/recovery.
local function load_queue(name)
  if loaded_queues[name] then return loaded_queues[name] end
  local fields = call('HMGET', K.queue(name), F.compiled, F.sorted, F.watched, F.policy, F.recorded, F.owner,
    F.recovering, F.token, F.skipped, F.progress, F.in_runs, F.grouping, F.rated, F.acknowledged, F.open_run, F.listed)
  if not fields[1] then return nil end
  if fields[15] and not only_reads then open_run().end_open_run(name, fields[15]) end
  local known = known_definitions[fields[1]]
  if not known then
    known = {string.match(fields[1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?([^:%s]*):?(%w*)$')}
    for i = 1, 10 do known[i] = tonumber(known[i]) end
    local number = known_definitions.number or 0
    if number == 200 then known_definitions, number = {}, 0 end
    known_definitions[fields[1]], known_definitions.number = known, number + 1
  end
  local lease, backlog, deliveries, cancels, ratio, turn, once, strict, room, depth, topic, format = unpack(known)
  local queue = {
    name = name, lease = lease, backlog = backlog, deliveries = deliveries, cancels = cancels, ratio = ratio, turn = turn, once = once == 1,
    strict = strict == 1, room = room, depth = depth, topic = topic,
    sorted = fields[2], watched = fields[3], recorded = fields[5], owner = fields[6], recovering = fields[7], token = fields[8],
    skipped = fields[9], progress = fields[10], in_runs = fields[11] and fields[11] ~= '0' and tonumber(fields[11]) or nil, life = 0, model = 0, redelivery = 0, format = nil, kind = ' b ',
    acknowledged = fields[14], listed = fields[16] or nil,
    entered = fields[16] and string.match(fields[16], '%S+$') or '',
  }
  if fields[15] and only_reads then queue.pushed = open_run().leases_in_open_run(fields[15]) end
  if fields[12] then
    queue.concurrency, queue.batch, queue.affinity, queue.on_failure, queue.choice =
      string.match(fields[12], '^(%d+)/?(%d*)~?(%d*) (%l+) ?([%l_]*)$')
    if queue.choice == '' then queue.choice = nil end
    queue.concurrency, queue.batch, queue.affinity = tonumber(queue.concurrency), tonumber(queue.batch), tonumber(queue.affinity)
  end
  if fields[13] then load_rates(queue, fields[13]) end
  if format ~= '' then queue.format, queue.kind = format, ' ' .. format .. ' ' end
  if fields[4] then load_policy(queue, fields[4]) end
  -- Whether each message has a fate to be looked at: most say of themselves whether they do.
  queue.fated = queue.life > 0 or queue.owner and queue.owner ~= V.everywhere
  loaded_queues[name] = queue
  return queue
end

-- Notes a field of a queue for `save_queue`, which writes all of them at once: a command costs more than a field.
local function set_later(queue, field, value)
  local unsaved = queue.unsaved
  if unsaved then
    unsaved[#unsaved + 1], unsaved[#unsaved + 2] = field, value
  else
    queue.unsaved = {field, value}
  end
end

local function save_queue(queue)
  local unsaved = queue.unsaved
  if not unsaved then return end
  queue.unsaved = nil
  call('HSET', K.queue(queue.name), unpack(unsaved))
end
