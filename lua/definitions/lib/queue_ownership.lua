--- queue_ownership: whose the messages of a queue are at first, and how long what is told of them before they come is kept.
--- @include fail, queue_emptiness
-- owner: `*`, the origin's; an instance's name; '', everybody's own copy. domain: of a group local queue, else ''.

-- With messages in it, two instances could own one, or none.
local function check_ownership(name, owner, domain)
  local former = call('HMGET', K.queue(name), F.owner, F.domain)
  local is_same = (former[1] or '') == owner and (former[2] or '') == domain
  if not is_same and not is_queue_empty(name) then fail(E.QUEUE_NOT_EMPTY, {queue = name}) end
end

local function define_ownership(name, owner, domain, deferral)
  for field, value in pairs({[F.owner] = owner, [F.domain] = domain, [F.deferral] = deferral}) do
    if value == '' then call('HDEL', K.queue(name), field) else call('HSET', K.queue(name), field, value) end
  end
end
