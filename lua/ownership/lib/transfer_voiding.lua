--- transfer_voiding: a lower bookmark of a message came: what was transferred under the higher one is void.
--- @include ownership_transfer

-- In every queue its owner is the default one again, and it stands where that says; what somebody holds stays with them.
local function void_transfers(topic, routed, id, now)
  for name in string.gmatch(routed, '[^%s*]+') do
    local queue, ref = load_queue(name), ref_of(topic, id)
    if queue and queue.owner then
      call('HDEL', K.owners(name), ref)
      place_by_owner(queue, ref, now)
    end
  end
end
