--- uncollected_leases: which of the leases that ended were never picked up by anybody.
--- @include inbox

-- How many elements of an inbox are looked at for what is stale: the first ones; all where more than half of them must be, so that the inbox
-- of a consumer that does not come is bounded. Nothing is pushed to one that is gone.
local function number_to_prune(holder, number)
  local leased = call('HGET', K.subscription(holder), F.leased)
  local length = leased and call('LLEN', K.inbox(holder)) / 2 or 0
  return length > 2 * ((leased or 0) + number + 64) and length or number + 64
end

-- Takes `number` tokens of a queue out of the first part of an inbox, with all that is stale there. Notes in `unseen` those found; returns how
-- many were not, and heads and bodies that stay.
local function prune_inbox(queue, holder, tokens, number, unseen)
  local kept, left = {}, number_to_prune(holder, number)
  while left > 0 do
    local texts = call('LPOP', K.inbox(holder), 2 * math.min(left, 2 * V.batch))
    if not texts then break end
    for i, element in ipairs(parse_elements(texts)) do
      if element.queue == queue.name and tokens[element.token] then
        unseen[element.token], number = true, number - 1
      elseif is_barrier_element(element) or element.lease then
        kept[#kept + 1], kept[#kept + 2] = texts[2 * i - 1], texts[2 * i]
      end
    end
    left = left - #texts / 2
  end
  return number, kept
end

-- Looks for `number` more tokens in what is left of an inbox, mostly nothing. They may lie there behind messages that are leased for longer, that
-- were settled where they lie, or that come with a later step of the pass, which has no order. What is found is stale when its lease has
-- ended, and leaves the inbox as such.
local function search_inbox(queue, holder, tokens, number, unseen)
  local first = 0
  while number > 0 do
    local texts = call('LRANGE', K.inbox(holder), first, first + 2 * V.batch - 1)
    if #texts == 0 then return end
    for i = 1, #texts, 2 do
      local name, token = string.match(texts[i], '^(%S+) (%d+)')
      if tokens[token] and name == queue.name then unseen[token], number = true, number - 1 end
    end
    first = first + #texts
  end
end

-- What never left its holder's inbox was never picked up: it goes back uncounted. Returns the tokens found.
local function find_uncollected(queue, holder, tokens, number)
  local unseen = {}
  local left, kept = prune_inbox(queue, holder, tokens, number, unseen)
  search_inbox(queue, holder, tokens, left, unseen)
  -- From the last one to the first one, since what is pushed last stands first.
  local reversed = {}
  for i = #kept, 1, -1 do reversed[#reversed + 1] = kept[i] end
  call_in_batches('LPUSH', K.inbox(holder), reversed)
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
  for holder, held in pairs(holders) do held.unseen = find_uncollected(queue, holder, held.tokens, held.number) end
  for i, lease in ipairs(list.leases) do
    local target_refs, target_leases = refs, leases
    if holders[lease.holder].unseen[lease.token] then
      target_refs, target_leases = given_back.refs, given_back.leases
    end
    target_refs[#target_refs + 1], target_leases[#target_leases + 1] = list.refs[i], lease
  end
  list.refs, list.leases = refs, leases
end
