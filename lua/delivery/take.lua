--- take: pick up what was pushed to a subscription and what is waiting for it, carrying acknowledgements.
--- ARGV now, subscription_id, wanted, acks...
--- FAIL UNKNOWN_SUBSCRIPTION
--- GIVES {heads and bodies in turn; {ref, code, ...} of the acknowledgements refused; 1: nothing yet, ask again, else 0}; of a visit also {how much it has leased; 1: its bell waits, else 0}
--- FLAGS allow-oom
--- @include clock, fail, settlement_groups, settlement, dispatch, inbox(), run_settlement
-- acks: groups as settlement_groups has them. wanted: how many; behind it ` run` where a head may stand for a run: many refs with a
-- space between them, the tokens from the first one's on, as many bodies; else ` single`. Behind that, of a visit to a subscription with a
-- bell, its credits and its number; see bells.lua. Nothing yet: messages are still to be judged by filters or priorities, and each call does a
-- bounded part of that.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id}) end
-- Mostly nothing lies in any of these: one look for all.
local alone = not string.find(subscription.queues, ' ', 1, true) and load_queue(subscription.queues)
if alone and not alone.sorted then
  alone.is_bare = call('EXISTS', K.inbox(subscription_id), K.ready(alone.name), K.ahead(alone.name), K.owners(alone.name)) == 0
end
subscription.is_inbox_empty = alone and alone.is_bare
local refused, freed, queues = {}, {}, {}
local function acknowledge_all()
  local runs, at = {}, acks_from
  local function add_refused(answers)
    if not refused[1] then refused = answers return end
    for _, text in ipairs(answers) do refused[#refused + 1] = text end
  end
  while at < #ARGV do
    local queue, refs, tokens, after, run = read_group(at)
    at = after
    if queue and not runs[queue] then
      queues[#queues + 1], runs[queue] = queue, {}
      -- Only one message of each group may go then.
      queue.keeps_freed = queue.concurrency and (queue.choice or queue.concurrency == 1) and not queue.batch and not queue.affinity and not queue.group_rate
    end
    if queue and run then
      runs[queue][#runs[queue] + 1] = run
    elseif queue then
      add_refused(settle_messages(queue, ms, V.acknowledged, 0, refs, tokens, subscription_id, freed))
    end
  end
  for _, queue in ipairs(queues) do
    if runs[queue][1] then add_refused(acknowledge_in_runs(queue, ms, runs[queue], subscription_id, freed)) end
  end
end

if #ARGV >= acks_from then acknowledge_all() end
local most, form, credits, visit = string.match(wanted, '^(%d+) run$'), 'run', '', ''
if not most then most, form, credits, visit = string.match(wanted, '^(%d+) ?(%l*) ?(%d*) ?(%d*)$') end
subscription.takes_runs = form == 'run'
local elements, full = {}, false
if not subscription.is_inbox_empty then elements, full = inbox().take_inbox(subscription_id, tonumber(most), freed) end
local got = #elements / 2
free_room(freed, ms, '', subscription)
local visits = visit ~= '' and begin_visit(subscription, visit, credits, tonumber(most) - got)
local unfinished = false
local function give_of(name)
  -- What is left in the inbox comes first, and a reply has its size.
  local bytes = 0
  for i = 1, alone and 0 or #elements do bytes = bytes + #elements[i] end
  full = full or bytes >= V.bytes
  local left = full and 0 or most - got
  if left > 0 then
    local given, more = dispatch_or_defer(name, ms, left, subscription)
    unfinished = unfinished or more
    got = got + (given.run or #given / 2)
    if #elements == 0 then
      elements = given
    else
      for i = 1, #given do elements[#elements + 1] = given[i] end
    end
  elseif next(freed) and (load_queue(name).backlog > 0 or load_queue(name).sorted or load_queue(name).depth > 0) then
    -- Places under the queue's own limits are everybody's, and a barrier may have its turn.
    if subscription.unsaved then save_subscription(subscription) end
    dispatch_or_defer(name, ms, V.batch)
  end
end
for name in string.gmatch(queues_in_turn(subscription), '%S+') do give_of(name) end
if visits then end_visit(subscription, not unfinished and not full) end
if subscription.unsaved then save_subscription(subscription) end
for _, queue in ipairs(queues) do
  -- What it held of a queue that it has left.
  local mine = queue == alone or string.find(' ' .. subscription.queues .. ' ', ' ' .. queue.name .. ' ', 1, true)
  if not mine then dispatch_or_defer(queue.name, ms, V.batch) end
  if queue.freed then group_state().save_freed(queue) end
  save_queue(queue)
end
local reply = {elements, refused, unfinished and #elements == 0 and 1 or 0}
if visit ~= '' then reply[4], reply[5] = subscription.leased, subscription.bell == '1' and 1 or 0 end
return reply
