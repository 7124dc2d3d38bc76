--- confirm_sequence: write that a publisher's session has recorded all up to a sequence: who waits for this write waits for all of that.
--- ARGV now, publisher, session, sequence
--- FAIL NAME_IN_USE, SEQUENCE_GAP
--- GIVES 1
--- FLAGS allow-oom
--- @include clock, fail
-- A server that took over and lacks some of it must not confirm it.
local number, client = string.match(call('HGET', K.sessions(), publisher) or '', '^(%d+) %d+ (.*)$')
if number ~= session then fail(E.NAME_IN_USE, {publisher = publisher, by = client}) end
local last = tonumber(string.match(call('HGET', K.publishers(), publisher) or '0', '^%d+'))
if last < tonumber(sequence) then
  fail(E.SEQUENCE_GAP, {publisher = publisher, expected = string.format('%.0f', last + 1), got = sequence})
end
call('HSET', K.sessions(), publisher, session .. ' ' .. string.format('%.0f', clock_ms(now)) .. ' ' .. client)
return 1
