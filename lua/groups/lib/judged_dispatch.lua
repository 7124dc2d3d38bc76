--- judged_dispatch: dispatch for queues that look into their messages: by priorities, filters, barriers, a ring, or by groups.
--- @include sorted_dispatch, grouped_dispatch()

local loaded_groups = {}

-- As `dispatch_queue`.
local function dispatch_judged(queue, now, limit, own, duty)
  if not queue.concurrency then return dispatch_sorted(queue, now, limit, own, duty) end
  loaded_groups.functions = loaded_groups.functions or grouped_dispatch()
  return loaded_groups.functions.dispatch_grouped(queue, now, limit, own, duty)
end
