--- recovery: a new incarnation holds the queues that several instances have until it knows what the last one did.
--- @include catalog, incarnations

-- Whoever reads it for this instance from now on reads it under this word; what was read under another one does not count.
local function note_recovery(now)
  change_catalog()
  call('DEL', K.recovery())
  call('HSET', K.instance(), F.recovering, string.format('%.0f', now) .. '-' .. call('HGET', K.instance(), F.catalog))
end

-- voided: leases up to the queue's present token are those of a server that is no more.
local function hold_shared_queues(now, voided)
  local names = {}
  for _, name in ipairs(call('HKEYS', K.queues())) do
    local owner, token = unpack(call('HMGET', K.queue(name), F.owner, F.token))
    if owner then
      names[#names + 1] = name
      call(voided and 'HSET' or 'HSETNX', K.queue(name), F.recovering, voided and token or 0)
    end
  end
  note_recovery(now)
  return names
end
