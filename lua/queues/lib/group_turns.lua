--- group_turns: in which order the groups of a queue come where they take turns, `round_robin` or `fair`.
--- @include batch
-- Turns are numbers that rise. A delivery gives its group the next one, so that it stands behind all others. A group that joins
-- gets the turn that was reached, in front of all that had one since, and each one that joins after it the next number: it
-- comes soon, and however many join, those that wait are passed by no more of them than stand before them. One of which nothing
-- is left keeps its turn until that was reached, so that leaving and joining again brings it nothing.

-- last: the highest turn of all; joined: that of the group that joined last; reached: up to which turns have come.
local function load_round(queue)
  local text = call('HGET', K.queue(queue.name), F.round)
  local last, joined, reached = string.match(text or '0 0 0', '^(%d+) (%d+) (%d+)$')
  return {last = tonumber(last), joined = tonumber(joined), reached = tonumber(reached)}
end

local function save_round(queue, round)
  call('HSET', K.queue(queue.name), F.round, string.format('%d %d %d', round.last, round.joined, round.reached))
end

local function next_joining_turn(round)
  round.joined = math.max(round.joined + 1, round.reached)
  round.last = math.max(round.last, round.joined)
  return round.joined
end

-- A delivery: turn is the one that its group had. Gives its next one.
local function take_turn(round, turn)
  round.reached, round.last = math.max(round.reached, turn), round.last + 1
  return round.last
end

-- Groups that have no turn, in their order, get one: that of before, or that of a group that joins.
local function assign_turns(queue, states)
  if not states[1] then return end
  local round, kept, back = load_round(queue), {}, {}
  local some_are_kept = call('EXISTS', K.turns(queue.name)) == 1
  for first = 1, some_are_kept and #states or 0, 1000 do
    local names = {}
    for i = first, math.min(first + 999, #states) do names[#names + 1] = states[i].name end
    for i, turn in ipairs(call('ZMSCORE', K.turns(queue.name), unpack(names))) do
      kept[first + i - 1] = turn
      if turn then back[#back + 1] = names[i] end
    end
  end
  for i, state in ipairs(states) do
    local turn = kept[i] and tonumber(kept[i])
    state.turn = turn and turn > round.reached and turn or next_joining_turn(round)
  end
  call_in_batches('ZREM', K.turns(queue.name), back)
  save_round(queue, round)
end

-- The place of a group among those that may go, least first: its share of what is leased, leased / weight, then its turn.
-- A double has 53 bits: 13 for the share, so that shares that differ by less than 0.4 % are alike, and 40 for the turn.
local function place_in_line(queue, leased, weight, turn)
  if queue.choice == V.round_robin or leased == 0 then return turn end
  local fraction, exponent = math.frexp(leased * 1024 / weight)
  return math.min(exponent * 256 + math.floor((fraction - 0.5) * 512), 8191) * 2 ^ 40 + turn
end

local function turn_of_place(score)
  return score % 2 ^ 40
end

-- Turns that were reached are kept no longer; where nothing may go, all were. Whether more of them are left.
local function end_round(queue)
  if call('EXISTS', K.turns(queue.name)) == 0 then return false end
  local round = load_round(queue)
  if call('ZCARD', K.going(queue.name)) <= 1 and round.reached < round.last then
    round.reached = round.last
    save_round(queue, round)
  end
  local over = call('ZRANGE', K.turns(queue.name), '-inf', string.format('%d', round.reached), 'BYSCORE', 'LIMIT', 0, V.batch)
  call_in_batches('ZREM', K.turns(queue.name), over)
  return #over == V.batch
end
