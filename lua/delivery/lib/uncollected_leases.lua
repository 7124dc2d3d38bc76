--- uncollected_leases: which of the leases that ended were never picked up by anybody.
--- @include inbox

-- What never left its holder's inbox was never picked up: it leaves it now, and goes back uncounted. What was stale there
-- before goes with it, so that the inbox of a consumer that does not come is bounded. Returns the tokens found.
local function prune_inbox(queue, holder, tokens, number)
  local texts = call('LPOP', K.inbox(holder), 2 * (number + 64)) or {}
  local elements, kept, unseen = parse_elements(texts), {}, {}
  -- From the last one to the first one, since what is pushed last stands first.
  for i = #elements, 1, -1 do
    local element = elements[i]
    if element.queue == queue.name and tokens[element.token] then
      unseen[element.token] = true
    elseif is_barrier_element(element) or element.lease then
      kept[#kept + 1], kept[#kept + 2] = texts[2 * i], texts[2 * i - 1]
    end
  end
  call_in_batches('LPUSH', K.inbox(holder), kept)
  return unseen
end

-- Moves what nobody picked up from a list of leases that ended to the list of those given back.
local function sort_out_uncollected(queue, list, given_back)
  local holders, refs, leases = {}, {}, {}
  for _, lease in ipairs(list.leases) do
    local held = holders[lease.holder] or {tokens = {}, number = 0}
    holders[lease.holder] = held
    held.tokens[lease.token], held.number = true, held.number + 1
  end
  for holder, held in pairs(holders) do held.unseen = prune_inbox(queue, holder, held.tokens, held.number) end
  for i, lease in ipairs(list.leases) do
    local target_refs, target_leases = refs, leases
    if holders[lease.holder].unseen[lease.token] then
      target_refs, target_leases = given_back.refs, given_back.leases
    end
    target_refs[#target_refs + 1], target_leases[#target_leases + 1] = list.refs[i], lease
  end
  list.refs, list.leases = refs, leases
end
