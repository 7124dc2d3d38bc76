--- check_free_subscriptions: a part of a queue's subscriptions, or of those that stand free with one filter: whether each stands where it should.
--- ARGV queue_name, source, cursor, repair
--- FAIL UNKNOWN_QUEUE
--- GIVES {cursor of the next part or '0', members that do not exist, wrong places, strangers, subscriptions...}
--- FLAGS allow-oom
--- @include fail, subscription
-- source: `members`, `all` for whoever should be one, or ` ` and the name of a filter. With repair 1 all of it is mended.
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local gone, wrong, strangers, ids = 0, 0, 0, {}

local function is_in_place(subscription)
  local score = tonumber(call('ZSCORE', K.free(queue_name, subscription.filter), subscription.id) or nil)
  if subscription.leased >= subscription.max then
    return score == (subscription.bell == '1' and tonumber(V.bell_score) or nil)
  end
  return score and math.abs(score - current_score(queue, subscription)) < 0.000001
end

local function check_member(id)
  local subscription = load_subscription(id)
  if not subscription then
    gone = gone + 1
    if repair == '1' then call('SREM', K.members(queue_name), id) end
    return
  end
  ids[#ids + 1] = id
  if is_in_place(subscription) then return end
  wrong = wrong + 1
  if repair == '1' then update_free(queue, subscription) end
end

local scanned
if source == 'members' then
  scanned = call('SSCAN', K.members(queue_name), cursor, 'COUNT', 100)
  for _, id in ipairs(scanned[2]) do check_member(id) end
elseif source == 'all' then
  scanned = call('ZSCAN', K.subscriptions(), cursor, 'COUNT', 100)
  for i = 1, #scanned[2], 2 do
    local subscription = load_subscription(scanned[2][i])
    local wants = subscription and string.find(' ' .. subscription.queues .. ' ', ' ' .. queue_name .. ' ', 1, true)
    if wants and call('SISMEMBER', K.members(queue_name), scanned[2][i]) == 0 then
      wrong = wrong + 1
      if repair == '1' then
        call('SADD', K.members(queue_name), scanned[2][i])
        update_free(queue, subscription)
      end
    end
  end
else
  source = string.sub(source, 2)
  scanned = call('ZSCAN', K.free(queue_name, source), cursor, 'COUNT', 100)
  for i = 1, #scanned[2], 2 do
    local subscription = load_subscription(scanned[2][i])
    local is_member = call('SISMEMBER', K.members(queue_name), scanned[2][i]) == 1
    if not subscription or not is_member or subscription.filter ~= source then
      strangers = strangers + 1
      if repair == '1' then call('ZREM', K.free(queue_name, source), scanned[2][i]) end
    end
  end
end
return {scanned[1], gone, wrong, strangers, unpack(ids)}
