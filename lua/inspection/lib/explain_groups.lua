--- explain_groups: what keeps a message of a queue with groups behind others of its group.
--- @include explain_facts, group_names, group_state

-- A row each of at most five that are leased: subscription, ms since when, as the token tells, client. Only the first leases are looked at.
local function add_group_holders(look, name)
  local seen, number, ending = call('HSCAN', K.leases(look.queue.name), 0, 'COUNT', 500)[2], 0, '\n' .. name
  for i = 1, #seen, 2 do
    if number < 5 and string.sub(seen[i + 1], -#ending) == ending then
      local token, holder = string.match(seen[i + 1], '^(%d+) (%S+)')
      local since = string.format('%.0f', V.counted_since + math.floor(token / 1000))
      number = number + 1
      add_fact(look, 'group_holder', holder .. ' ' .. since .. ' ' .. (call('HGET', K.subscription(holder), F.client) or ''))
    end
  end
end

-- Where groups take turns: how many groups stand in line before its group, and how many messages of that before it.
local function add_line_facts(look, ref, state)
  local name, key = state.name, K.grouped(look.queue.name)
  local first = state.going > 0 and places_in_group(look.queue, state, 0, 1)[1]
  local is_pinned = call('HEXISTS', K.pinned(look.queue.name), ref) == 1
  local before = call('ZLEXCOUNT', key, '[' .. name .. '\000', '(' .. name .. (is_pinned and '\0000' or '\0001') .. ref)
  if not is_pinned then before = before + rank_in_list(look.queue, state, ref) end
  add_fact(look, 'group_line', first and call('ZRANK', going_key(look.queue, state), first .. name) or nil)
  add_fact(look, 'group_before', before)
  add_fact(look, 'group_weight', state.weight)
end

-- ms until the rate of its group lets one more go, where nothing else keeps the message from being that one.
local function time_until_rate(queue, state, member, where)
  local rate, tokens = queue.group_rate, tokens_of_group(queue, state)
  -- A full bucket gets no more tokens by waiting: the message waits for those before it.
  if not rate or tokens >= math.min(places_of_group(queue, state), rate.burst) then return nil end
  local has_token = where == 'sorted' and call('ZSCORE', going_key(queue, state), member) or where ~= 'sorted' and state.waiting < tokens
  if has_token or tokens > 0 and stands_for_its_group(queue) then return nil end
  return math.max(math.ceil((time_of_tokens(rate, state.full, tokens + 1) - rate_clock()) / 1000), 1)
end

-- To whom its group is bound: subscription, ms until when, client; and whether that has no room.
local function add_binding_facts(look, state)
  if not look.queue.affinity or not state.bound_to then return end
  local max, leased, client = unpack(call('HMGET', K.subscription(state.bound_to), F.max, F.leased, F.client))
  add_fact(look, 'group_bound', state.bound_to .. ' ' .. string.format('%.0f', state.bound_until) .. ' ' .. (client or ''))
  add_fact(look, 'group_bound_full', max and tonumber(leased) >= tonumber(max) and 1)
end

local function add_group_facts(look, ref, fields, where)
  local queue = look.queue
  local name = group_name(look.plan, ref, fields, look.ms)
  if name == '' then return end
  local state, member = load_groups(queue, {name})[name], ref .. ' ' .. name
  -- What is listed stands in its group as what has its place.
  if where == 'waiting' and ref <= queue.entered then where, member = 'sorted', ref .. '\t' .. name end
  add_fact(look, 'group', name)
  add_fact(look, 'group_leased', state.leased)
  add_fact(look, 'group_waiting', state.waiting)
  add_fact(look, 'group_failed', queue.on_failure ~= V.pass and state.held or 0)
  add_fact(look, 'group_stopped', state.stopped)
  add_fact(look, 'group_paused', state.paused)
  add_fact(look, 'group_paused_by', state.paused_by)
  add_binding_facts(look, state)
  local places = places_of_group(queue, state)
  local has_place = where ~= 'sorted' and where ~= 'ready' and state.waiting < places
    or where == 'ready' or call('ZSCORE', going_key(queue, state), member)
  -- A full bucket that lets fewer go than have a place keeps the next ones behind those that may go, and they wait for nothing else.
  local is_full = queue.group_rate and tokens_of_group(queue, state) >= queue.group_rate.burst
  if is_full or stands_for_its_group(queue) then has_place = places > 0 end
  if queue.choice and where == 'sorted' then add_line_facts(look, ref, state) end
  add_fact(look, 'group_has_place', has_place and 1 or 0)
  add_fact(look, 'group_rate_wait', time_until_rate(queue, state, member, where))
  add_fact(look, 'group_pinned', call('HEXISTS', K.pinned(queue.name), ref))
  add_group_holders(look, name)
end
