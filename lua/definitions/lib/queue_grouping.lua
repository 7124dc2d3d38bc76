--- queue_grouping: by what a queue's messages are in groups, and how many of each may be leased.
--- @include fail, queue_emptiness, group_state(), group_review, queue
-- grouping: `<concurrency> <hold, pass or stop> <first, round_robin or fair> <tree>`, without a tree where only publishers say the
-- group; behind a line feed, if there is one, the tree of its weight.

local function grouping_tree(grouping)
  return string.match(grouping, '^%d+ %l+ [%l_]+ ([^\n]*)')
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

local function define_grouping(name, grouping, now)
  local former = call('HGET', K.queue(name), F.grouping)
  local numbers, choice, tree, weight = string.match(grouping, '^(%d+ %l+) ([%l_]+) ([^\n]*)\n?(.*)$')
  loaded_queues[name] = nil
  if not numbers then
    if former then
      call('HDEL', K.queue(name), F.grouping, F.round)
      call('HDEL', K.filters(name), F.grouped_by, F.weighed_by)
      call('UNLINK', K.groups(name), K.grouped(name), K.going(name), K.pinned(name), K.turns(name))
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
  if former and former ~= numbers then review_definition(load_queue(name), '0', now) end
end
