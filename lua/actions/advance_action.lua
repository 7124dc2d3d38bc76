--- advance_action: move an action past events of a source that it has acted on, unless somebody else did it before.
--- ARGV action, source, expected, cursor, sequence, read, done
--- GIVES 1, or 0 when the cursor was not the expected one
--- FLAGS allow-oom
--- @include fail
-- cursor: an ID, or with `+<events>` behind it that of an entry of which so many are done. done: how many it acted on.
if (call('HGET', K.action(action), F.cursor .. ' ' .. source) or '0-0') ~= expected then return 0 end
call('HSET', K.action(action), F.cursor .. ' ' .. source, cursor, F.sequence_of .. ' ' .. source, sequence,
  F.read .. ' ' .. source, read)
if done ~= '0' then call('HINCRBY', K.action(action), F.done, done) end
return 1
