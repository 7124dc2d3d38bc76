--- queue_grouping: by what a queue's messages are in groups, how many of each may be leased, and how many are delivered in what time.
--- @include fail, queue_emptiness, group_state(), group_lines, group_review, queue, rates()
-- grouping: `<concurrency> <hold, pass or stop> <first, round_robin or fair> <tree>`, without a tree where only publishers say the
-- group; behind a line feed, if there is one, the tree of its weight; behind the concurrency, if groups go in batches, `/<size>`, and if they
-- are bound to subscriptions, `~<ms>`. rated: as the queue's field has it, see queue.lua.

local function grouping_tree(grouping)
  return string.match(grouping, '^[%d/~]+ %l+ [%l_]+ ([^\n]*)')
end

-- With messages in it, some would have another group than they count for.
local function check_grouping(name, grouping)
  local former = load_queue(name).concurrency and (call('HGET', K.filters(name), F.grouped_by) or '') or nil
  if former ~= grouping_tree(grouping) and not is_queue_empty(name) then fail(E.QUEUE_NOT_EMPTY, {queue = name}) end
end

-- No message of it is judged for a subscription.
local function check_filters_of(name, from)
  for i = from, #ARGV do
    if call('HEXISTS', K.subscription(ARGV[i]), F.filter) == 1 then fail(E.GROUPED_QUEUE, {queue = name}) end
  end
end

-- What was delivered so far counts for a rate that takes the place of another. Whether that of each group is another one.
local function define_rates(name, rated)
  local former = call('HGET', K.queue(name), F.rated) or ''
  if former == rated then return false end
  local of_groups = string.match(rated, ' (%S+ %d+)$')
  local former_of_groups = string.match(former, ' (%S+ %d+)$')
  if rated == '' then
    call('HDEL', K.queue(name), F.rated)
  else
    call('HSET', K.queue(name), F.rated, rated)
    call('HSET', K.instance(), F.format, V.format_of_groups)
  end
  loaded_queues[name] = nil
  if rated == '' or string.sub(of_groups, 1, 2) == '0 ' then
    local full = rated ~= '' and call('ZSCORE', K.rates(name), '')
    call('UNLINK', K.rates(name), K.later(name))
    if full then call('ZADD', K.rates(name), full, '') end
  end
  local queue = load_queue(name)
  if not queue.rate then
    call('ZREM', K.rates(name), '')
  else
    -- Where the burst is smaller now, the bucket is not emptier than empty.
    rates().tokens_left(queue)
  end
  return of_groups ~= former_of_groups
end

-- are_rates_new: those of each group.
local function define_grouping(name, grouping, are_rates_new, now)
  local former = call('HGET', K.queue(name), F.grouping)
  local numbers, choice, tree, weight = string.match(grouping, '^([%d/~]+ %l+) ([%l_]+) ([^\n]*)\n?(.*)$')
  loaded_queues[name] = nil
  local was_bound = former and string.find(former, '~', 1, true)
  if was_bound and not (numbers and string.find(numbers, '~', 1, true)) then call('ZREM', K.due(), 'affinity ' .. name) end
  if not numbers then
    if former then
      call('HDEL', K.queue(name), F.grouping, F.round, F.listed, F.listings)
      call('HDEL', K.filters(name), F.grouped_by, F.weighed_by)
      unlink_lines(name)
      call('UNLINK', K.groups(name), K.grouped(name), K.listed(name), K.going(name), K.pinned(name), K.turns(name), K.batches(name))
    end
    return
  end
  if choice ~= V.first then
    numbers = numbers .. ' ' .. choice
  else
    call('HDEL', K.queue(name), F.round)
    call('UNLINK', K.turns(name))
  end
  call('HSET', K.queue(name), F.grouping, numbers)
  for field, text in pairs({[F.grouped_by] = tree, [F.weighed_by] = weight}) do
    if text ~= '' then call('HSET', K.filters(name), field, text) else call('HDEL', K.filters(name), field) end
  end
  group_state().keep_group_tables(name)
  call('HSET', K.instance(), F.format, V.format_of_groups)
  -- The first step at once: of few groups nothing waits for a coordinator, and `check` finds none that lags behind.
  if former and (former ~= numbers or are_rates_new) then review_definition(load_queue(name), '0', now) end
end
