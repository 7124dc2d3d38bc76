--- take: pick up what was pushed to a subscription and what is waiting for it, carrying acknowledgements.
--- ARGV now, subscription_id, wanted, acks...
--- FAIL UNKNOWN_SUBSCRIPTION
--- GIVES {heads and bodies in turn; {ref, code, ...} of the acknowledgements refused}
--- FLAGS allow-oom
--- @include clock, fail, groups, settle, dispatch, inbox
-- acks: groups of queue, number, that many refs, that many tokens.
local ms = clock_ms(now)
local subscription = load_subscription(subscription_id)
if not subscription then fail(E.UNKNOWN_SUBSCRIPTION, {subscription = subscription_id}) end
local refused, freed, groups, at = {}, {}, {}, acks_from
while at < #ARGV do
  local queue, refs, tokens, after = read_group(at)
  groups[#groups + 1] = {queue = queue, refs = refs, tokens = tokens}
  at = after
end
for _, group in ipairs(groups) do
  local answers = group.queue
    and settle(group.queue, ms, V.acknowledged, 0, group.refs, group.tokens, subscription_id, freed) or {}
  for _, text in ipairs(answers) do refused[#refused + 1] = text end
end
local elements = take_inbox(subscription_id, tonumber(wanted), freed)
free_room(freed, ms, '', subscription)
for name in string.gmatch(in_turn(subscription), '%S+') do
  local left = wanted - #elements / 2
  if left > 0 then
    local given = dispatch_or_defer(name, ms, left, subscription)
    if #elements == 0 then
      elements = given
    else
      for i = 1, #given do elements[#elements + 1] = given[i] end
    end
  elseif next(freed) and (load_queue(name).backlog > 0 or load_queue(name).sorted or load_queue(name).depth > 0) then
    -- Places under the queue's own limits are everybody's, and a barrier may have its turn.
    if subscription.unsaved then save(subscription) end
    dispatch_or_defer(name, ms, V.batch)
  end
end
if subscription.unsaved then save(subscription) end
return {elements, refused}
