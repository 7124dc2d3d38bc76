--- dispatch: give waiting messages to free subscriptions. Order is `ready` and cursors, choice is the score in `free`.
--- @include plain_dispatch, judged_dispatch(), timetable

local loaded_judging = {}

-- limit: most messages to give. own: the subscription whose messages are returned instead of pushed, or nil. duty: do
-- also what nobody waits for yet. A sorted queue has its own supply: what has its place, instead of the logs; a grouped one
-- what may go of its groups.
-- Returns heads and bodies of `own`; the second value tells whether a limit ended it while there was more to give.
local function dispatch_queue(name, now, limit, own, duty)
  local queue = load_queue(name)
  if queue.recovering then return {}, false end
  if not queue.sorted then return dispatch_plain(queue, now, limit, own) end
  loaded_judging.functions = loaded_judging.functions or judged_dispatch()
  return loaded_judging.functions.dispatch_judged(queue, now, limit, own, duty)
end

-- Work that a bounded call leaves over is the timetable's, so that a caller that dies strands nothing.
local function dispatch_or_defer(name, now, limit, own, duty)
  local given, more = dispatch_queue(name, now, limit, own, duty)
  if more then add_due(now, 'dispatch ' .. name, 'NX') end
  return given, more
end
