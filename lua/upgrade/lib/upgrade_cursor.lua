--- upgrade_cursor: how far the upgrade of an instance is, `<part> <name>` beside its format: whoever goes on begins there.
-- While it lasts the format is the step's name, `4>5`: every script of the one format and of the other refuses. The name is the last
-- one that is done, in the order of names, since a scan's cursor says nothing to a server that was started anew.

-- Format and cursor.
local function upgrade_state()
  return call('HMGET', K.instance(), F.format, F.upgrade)
end

-- Whether the instance is where the caller believes it to be; else another upgrader went on, or this call was made before.
local function is_at_cursor(step, cursor)
  local found = upgrade_state()
  return found[1] == step and found[2] == cursor
end

-- Behind the last of the names that ARGV has from an index on; without any, at the begin of the next part.
local function move_cursor(cursor, from)
  local part = string.match(cursor, '^%d+')
  local following = ARGV[from] and part .. ' ' .. ARGV[#ARGV] or string.format('%d ', part + 1)
  call('HSET', K.instance(), F.upgrade, following)
end
