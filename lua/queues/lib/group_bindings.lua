--- group_bindings: to which subscription each group of a queue with affinity is bound, and until when.
--- @include batch, clock, timetable
-- A delivery binds its group to its subscription; the next ones go there, too, until nothing of the group is leased and the time since
-- the last one is over. What may go of a bound group stands in a line of its subscription, so that nobody else looks through it; in
-- another line, behind a `+`, while something of the group is leased: from there it goes to nobody else.

-- nil: where everything stands that is not bound.
local function line_of(state)
  if not state.bound_to then return nil end
  return state.leased > 0 and state.bound_to .. '+' or state.bound_to
end

-- Where what may go of a group stands.
local function going_key(queue, state)
  return state.line and K.going_of(queue.name, state.line) or K.going(queue.name)
end

-- rest: what stands in the group's text behind its numbers.
local function read_binding(state, rest)
  local subscription, ends = string.match(rest, '\ns(%S+) (%d+)')
  if not subscription then return end
  state.bound_to, state.bound_until = subscription, tonumber(ends)
  state.line = line_of(state)
end

-- Whether its group was not bound to this subscription before. ms: now.
local function bind(queue, state, subscription, ms)
  local begins = state.bound_to ~= subscription.id
  state.bound_to, state.bound_until, state.is_bound_anew = subscription.id, ms + queue.affinity, true
  return begins
end

local function unbind(state)
  state.bound_to, state.bound_until, state.is_bound_anew, state.is_unbound = nil, nil, nil, true
end

local function has_member(queue, id)
  queue.known_members = queue.known_members or {}
  local known = queue.known_members
  if known[id] == nil then known[id] = call('SISMEMBER', K.members(queue.name), id) == 1 end
  return known[id]
end

-- What ends a binding: its time, that its subscription is gone, another definition. None lasts longer than from now on, whatever the
-- clock, or the definition, was.
local function review_binding(queue, state)
  if not state.bound_to then return end
  if not queue.affinity or not has_member(queue, state.bound_to) then return unbind(state) end
  local ms = clock_read.ms or clock_ms('')
  if state.leased == 0 and state.bound_until <= ms then return unbind(state) end
  if state.bound_until > ms + queue.affinity then state.bound_until, state.is_bound_anew = ms + queue.affinity, true end
end

-- lines: in which something may have entered, or left them. A subscription stands among those with lines while there is something in one.
local function note_lines(queue, lines)
  local seen = {}
  for line in pairs(lines) do
    local id = string.match(line, '^[^+]+')
    if not seen[id] then
      seen[id] = true
      if call('EXISTS', K.going_of(queue.name, id)) == 1 then
        call('ZADD', K.lines(queue.name), 0, id)
      elseif call('EXISTS', K.going_of(queue.name, id .. '+')) == 1 then
        call('ZADD', K.lines(queue.name), 1, id)
      else
        call('ZREM', K.lines(queue.name), id)
      end
    end
  end
end

-- lines: of each what enters and what leaves it. bound: times and groups, in turn; unbound: groups.
local function save_bindings(queue, lines, bound, unbound)
  for line, changed in pairs(lines) do
    call_in_batches('ZREM', K.going_of(queue.name, line), changed.leaves)
    call_in_batches('ZADD', K.going_of(queue.name, line), changed.enters)
  end
  note_lines(queue, lines)
  call_in_batches('ZREM', K.bound(queue.name), unbound)
  call_in_batches('ZADD', K.bound(queue.name), bound)
  if bound[1] then add_due(bound[1], 'affinity ' .. queue.name, 'LT') end
end
