--- advance: move an action past journal entries that it has acted on, unless somebody else did it before.
--- ARGV action, expected, cursor, sequence
--- GIVES 1, or 0 when the cursor was not the expected one
--- FLAGS allow-oom
--- @include fail
if call('HGET', K.action(action), F.cursor) ~= expected then return 0 end
call('HSET', K.action(action), F.cursor, cursor, F.done, sequence)
return 1
