--- recorded_deliveries: who was delivered what and what came back why, of a queue whose deliveries are recorded.
--- @include timetable

-- The client of a subscription, `-` where it is not known any more.
local function client_of_holder(holder, known)
  if not known[holder] then
    local client = call('HGET', K.subscription(holder), F.client) or call('HGET', K.departed(), holder)
    known[holder] = client and string.match(client, '^(.*)/') or '-'
  end
  return known[holder]
end

-- holders: the subscription of each. cause: how they came back, '' for those that were delivered; consumer_reason: why, nil where
-- nobody says.
local function note_deliveries(queue, cause, refs, holders, consumer_reason)
  local clients, known = {}, {}
  for i = 1, #refs do clients[i] = client_of_holder(holders[i], known) end
  call('XADD', K.deliveries(queue.name), 'MAXLEN', '~', V.deliveries, '*', F.refs, table.concat(refs, ' '),
    F.by, table.concat(holders, ' '), F.client, table.concat(clients, ' '), F.cause, cause,
    unpack(consumer_reason and {F.consumer_reason, consumer_reason} or {}))
  wake_followers()
end

-- leases: refs and values in turn.
local function record_delivered(queue, refs, leases)
  local holders = {}
  for i = 1, #refs do holders[i] = string.match(leases[2 * i], '^%d+ (%S+)') end
  note_deliveries(queue, '', refs, holders)
end

local function record_returned(queue, cause, refs, leases, consumer_reason)
  local holders = {}
  for i = 1, #refs do holders[i] = leases[i].holder end
  note_deliveries(queue, cause, refs, holders, consumer_reason)
end
