--- log_rights: whether the caller may record in a log: asked before anything is written, since nothing is rolled back.

-- A publisher may be bound to some topics, and others may only read logs: for these the server refuses what follows, as
-- it refuses any command.
local function check_log(topic)
  local log = K.log(topic)
  if not redis.acl_check_cmd('XADD', log, '*', F.body, '') then call('XADD', log, '*', F.body, '') end
end
