--- uncollected_leases: which of the leases that ended were never picked up by anybody.
--- @include inbox

-- How many elements of an inbox are looked at for what is stale: the first ones; more where more than half of them must be, so that the inbox
-- of a consumer that does not come is bounded. Nothing is pushed to one that is gone.
local function number_to_prune(holder, number)
  local leased = call('HGET', K.subscription(holder), F.leased)
  local length = leased and call('LLEN', K.inbox(holder)) / 2 or 0
  return length > 2 * ((leased or 0) + number + 64) and math.max(number + 64, V.batch) or number + 64
end

-- Takes the tokens of a holder, `held`, out of the first part of its inbox, with all that is stale there; and what has ended there, too,
-- as `ends(lease)` tells, goes to `given_back`. Notes in `held.unseen` those found, and in `held.number` how many were not. Returns heads and bodies that
-- stay, whether more may have ended behind them, since what is pushed first mostly ends first, and the first token of the queue there.
local function prune_inbox(queue, holder, held, ends, given_back)
  local kept, left, found, lasts, first = {}, number_to_prune(holder, held.number), 0, false, nil
  while left > 0 do
    local texts = call('LPOP', K.inbox(holder), 2 * math.min(left, 2 * V.batch))
    if not texts then return kept, false, first end
    for i, element in ipairs(parse_elements(texts)) do
      local is_ours = element.queue == queue.name and not is_barrier_element(element)
      local lease = is_ours and element.lease and parse_lease(element.lease)
      if is_ours then first = first or tonumber(element.token) end
      if is_ours and held.tokens[element.token] then
        held.unseen[element.token], held.number, found = true, held.number - 1, found + 1
      elseif lease and ends(lease) then
        given_back.refs[#given_back.refs + 1], given_back.leases[#given_back.leases + 1], found = element.ref, lease, found + 1
      elseif is_barrier_element(element) or element.lease then
        kept[#kept + 1], kept[#kept + 2] = texts[2 * i - 1], texts[2 * i]
        lasts = lasts or lease
      end
    end
    left = left - #texts / 2
  end
  return kept, found > 0 and not lasts, first
end

-- Notes in `held.unseen` those of the tokens of a holder that are in what is left of its inbox. first: the first token of the queue there, if it is known.
-- An inbox is read from its beginning, where the tokens of a queue rise, so that the first one tells: what has a lower one was picked up, or given
-- at once when nothing was there; all others are still there. What was pushed again breaks that: up to which token, `again` tells, and until
-- those have left, each is looked for. What is found is stale when its lease has ended, and leaves the inbox as such.
local function find_in_inbox(queue, holder, held, first)
  -- Looks through what is left of an inbox for messages of a queue until `look(token)` has enough.
  local function search_inbox(look)
    local at = 0
    repeat
      local texts = call('LRANGE', K.inbox(holder), at, at + 2 * V.batch - 1)
      for i = 1, #texts, 2 do
        local name, token, delivery = string.match(texts[i], '^(%S+) (%d+) (%d+)')
        if name == queue.name and delivery ~= '0' and look(token) then return end
      end
      at = at + #texts
    until #texts == 0
  end

  if not first then search_inbox(function(token) first = tonumber(token) return true end) end
  local field = 'again ' .. queue.name
  local again = call('HGET', K.subscription(holder), field)
  if first and again and first <= tonumber(again) then
    return search_inbox(function(token)
      if held.tokens[token] then held.unseen[token], held.number = true, held.number - 1 end
      return held.number == 0
    end)
  end
  if again then call('HDEL', K.subscription(holder), field) end
  for token in pairs(held.tokens) do
    if first and tonumber(token) >= first then held.unseen[token] = true end
  end
end

-- Finds in `held.unseen` those tokens of a holder that never left its inbox. Returns whether that cannot be told yet of those not found.
local function find_uncollected(queue, holder, held, ends, given_back)
  local kept, more, first = prune_inbox(queue, holder, held, ends, given_back)
  if not more and held.number > 0 then find_in_inbox(queue, holder, held, first) end
  -- From the last one to the first one, since what is pushed last stands first.
  local reversed = {}
  for i = #kept, 1, -1 do reversed[#reversed + 1] = kept[i] end
  call_in_batches('LPUSH', K.inbox(holder), reversed)
  return more and held.number > 0
end

-- Moves what nobody picked up from a list of leases that ended to the list of those given back: they go back uncounted. Of an inbox that has more of
-- these than one call is to look at, a call takes the first part; what it does not find there leaves the list, too, and it returns true: the same
-- leases are to be looked at again. What was leased in a run was given to who asked for it, and is in no inbox.
local function sort_out_uncollected(queue, list, given_back, ends)
  local holders, refs, leases, is_more_left = {}, {}, {}, false
  for _, lease in ipairs(list.leases) do
    if not lease.was_in_run then
      local held = holders[lease.holder] or {tokens = {}, number = 0, unseen = {}}
      holders[lease.holder] = held
      held.tokens[lease.token], held.number = true, held.number + 1
    end
  end
  for holder, held in pairs(holders) do
    held.undecided = find_uncollected(queue, holder, held, ends, given_back)
    is_more_left = is_more_left or held.undecided
  end
  for i, lease in ipairs(list.leases) do
    local held, target_refs, target_leases = holders[lease.holder], refs, leases
    local is_unseen = not lease.was_in_run and held.unseen[lease.token]
    if is_unseen then target_refs, target_leases = given_back.refs, given_back.leases end
    if is_unseen or lease.was_in_run or not held.undecided then
      target_refs[#target_refs + 1], target_leases[#target_leases + 1] = list.refs[i], lease
    end
  end
  list.refs, list.leases = refs, leases
  return is_more_left
end
