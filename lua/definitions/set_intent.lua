--- set_intent: say in the first partition what is being defined in all of them, or that it is done.
--- ARGV expected, intent
--- FAIL STALE_DEFINITIONS
--- GIVES 1
--- @include fail
-- expected: what stands there, '' for nothing. A call that is repeated finds what it has written.
local found = call('HGET', K.instance(), F.intent) or ''
if found ~= expected and found ~= intent then fail(E.STALE_DEFINITIONS, {found = tonumber(string.match(found, '^%d+')) or 0}) end
call('HSET', K.instance(), F.intent, intent)
return 1
