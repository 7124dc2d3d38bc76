--- open_run_room: the number of leases of an open run's holder, which tells whether somebody else changed the subscription.

-- Adds to that number, where it is `leased`; false where it is not, and then it stays. Reading it first would be one command more.
local function change_leased(holder, leased, by)
  local key = K.subscription(holder)
  if call('HINCRBY', key, F.leased, by) == leased + by then return true end
  call('HINCRBY', key, F.leased, -by)
  -- It has more fields, unless somebody removed it.
  if call('HLEN', key) == 1 then call('DEL', key) end
  return false
end
