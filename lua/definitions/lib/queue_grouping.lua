--- queue_grouping: by what a queue's messages are in groups, and how many of each may be leased.
--- @include fail, queue_emptiness, group_state(), group_review, queue
-- grouping: `<concurrency> <hold, pass or stop> <tree>`, without a tree where only publishers say the group.

local function grouping_tree(grouping)
  return string.match(grouping, '^%d+ %l+ (.*)$')
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
  local former, numbers, tree = call('HGET', K.queue(name), F.grouping), string.match(grouping, '^(%d+ %l+) (.*)$')
  loaded_queues[name] = nil
  if not numbers then
    if former then
      call('HDEL', K.queue(name), F.grouping)
      call('HDEL', K.filters(name), F.grouped_by)
      call('UNLINK', K.groups(name), K.grouped(name), K.going(name), K.pinned(name))
    end
    return
  end
  call('HSET', K.queue(name), F.grouping, numbers)
  if tree ~= '' then call('HSET', K.filters(name), F.grouped_by, tree) else call('HDEL', K.filters(name), F.grouped_by) end
  group_state().keep_group_tables(name)
  call('HSET', K.instance(), F.format, V.format_of_groups)
  -- The first step at once: of few groups nothing waits for a coordinator, and `check` finds none that lags behind.
  if former and former ~= numbers then review_definition(load_queue(name), '0', now) end
end
