--- handover: what a delivery writes: leases, their deadline in the timetable, the element for its subscription.
--- @include delivery_tokens, queue, delivery_element, batch, journal, watchers, recorded_deliveries, timetable, lease_runs, rates()

-- The whole queue's limits: how much it may have leased, and its rate. A paused queue has nothing left.
local function deliveries_left(queue)
  if queue.backlog == V.no_room then return 0 end
  local left = queue.backlog == 0 and V.batch or queue.backlog - number_leased(queue.name)
  if queue.rate and left > 0 then return math.min(left, rates().tokens_left(queue)) end
  return left
end

-- The `count` deliveries behind the token `before` are made.
local function count_deliveries(queue, before, count)
  keep_tokens(queue, before, count)
  if queue.rate then rates().take_tokens(queue, count) end
end

local function write_leases(queue, now, leases, refs)
  call_in_batches('HSET', K.leases(queue.name), leases)
  if queue.lease > 0 then add_due(now + queue.lease, 'leases ' .. queue.name, 'LT') end
  if queue.once then write_journal(queue.name, V.delivered, '', refs, '') end
  notify_watchers(queue, refs)
  if queue.recorded then record_delivered(queue, refs, leases) end
end

-- Messages `from` to `to` for one subscription: their leases, and their heads and bodies at the end of `out`.
local function hand_over(queue, messages, from, to, subscription, token, deadline, make, leases, out)
  local refs, fields, deliveries, format = messages.refs, messages.fields, messages.deliveries, string.format
  local ends = messages.ends
  local holder, ending, number = ' ' .. subscription.id .. ' ', ' ' .. deadline .. ' ' .. queue.lease, #out
  for i = from, to do
    token = token + 1
    local text, ref, delivery = format('%d', token), refs[i], deliveries[i]
    leases[2 * i - 1], leases[2 * i] = ref, text .. holder .. delivery .. ending
    if ends and ends[i] then leases[2 * i] = leases[2 * i] .. ' ' .. ends[i] end
    out[number + 1], out[number + 2] = make(queue, text, delivery, deadline, ref, fields[i])
    number = number + 2
  end
end

-- Whether what a subscription is given at once from one log may be one lease.
local function may_be_run(queue, subscription)
  return subscription and subscription.takes_runs and queue.topic ~= '' and not queue.once and not queue.recorded and not queue.watched
end

-- One lease of `count` messages, whose refs are `text`. Returns where in `out` its head is; the bodies come behind it. out.run: how
-- many messages are in `out`. scattered: see lease_runs.
local function hand_over_run(queue, text, count, subscription, token, deadline, out, scattered)
  add_run(queue, text, count, subscription.id, token + 1, deadline, scattered)
  local at = #out + 1
  out[at] = queue.name .. ' ' .. string.format('%d', token + 1) .. ' 1 ' .. deadline .. queue.kind .. text
  out.run = (at - 1) / 2 + count
  return at
end

local function deadline_of(queue, now)
  return queue.lease > 0 and string.format('%d', now + queue.lease) or '0'
end
