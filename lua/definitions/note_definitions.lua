--- note_definitions: say in a partition which version of the definitions of all partitions is being made so; none before it is, from then on.
--- ARGV version
--- FAIL STALE_DEFINITIONS
--- GIVES 1
--- @include fail, catalog
-- The catalog has another version from here on: who read it before this, to define what is older, is refused.
local found = tonumber(call('HGET', K.instance(), F.definitions) or 0)
if found > tonumber(version) then fail(E.STALE_DEFINITIONS, {found = found}) end
if found < tonumber(version) then
  call('HSET', K.instance(), F.definitions, version)
  change_catalog()
end
return 1
