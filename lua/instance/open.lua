--- open: make an instance's keys ready for use, or find them so.
--- ARGV now, name, incarnation
--- FAIL FORMAT_MISMATCH, SLOT_KEY_TAKEN
--- GIVES {origin, catalog version, ms now}
--- FLAGS allow-oom
--- @include clock, fail
local ms = clock_ms(now)
if call('EXISTS', P) == 1 then fail(E.SLOT_KEY_TAKEN, {key = P}) end
local format = call('HGET', K.instance(), F.format)
if format and format ~= V.format and format ~= V.format_of_groups then fail(E.FORMAT_MISMATCH, {found = format, expected = V.format}) end
if not format then
  call('HSET', K.instance(), F.format, V.format, F.name, name, F.origin, name .. '.' .. incarnation, F.catalog, 0)
end
local fields = call('HMGET', K.instance(), F.origin, F.catalog, F.run)
if not fields[3] then call('HSET', K.instance(), F.run, string.match(call('INFO', 'server'), 'run_id:(%x+)') or '') end
return {fields[1], fields[2], ms}
