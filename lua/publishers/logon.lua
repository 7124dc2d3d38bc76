--- logon: open a publisher's session, which ends every other one under its name, and say where the publisher stands.
--- ARGV now, publisher, client, first, answered, former
--- FAIL NAME_IN_USE
--- GIVES {session, last sequence recorded, '' or the ID and the topic of that message, up to where all is recorded from `first` on}
--- FLAGS allow-oom
--- @include clock, fail, sequence_ranges, session_numbers, publisher_failover()
-- first: the least sequence that will be sent. What is missing between the last one and this is not held any more: it was
-- persisted, and the server has lost or forgotten it, or it was refused; the session begins behind it. answered: '' of a client
-- that was not logged on before; else the last sequence that it was told is recorded. It does not come back where another one
-- took the name meanwhile, or had it, recorded something and logged off: its own messages would look like duplicates. former: the
-- number of its session then, '' without one: a holder with a lower one was there before it, and the server lost its logon.
local held, holder = string.match(call('HGET', K.sessions(), publisher) or '', '^(%d+) %d+ (.*)$')
local last, place = string.match(call('HGET', K.publishers(), publisher) or '', '^(%d+) (.*)$')
local is_later = held and tonumber(held) > (tonumber(former) or 0)
if answered ~= '' and holder ~= client and (is_later or tonumber(last or 0) > tonumber(answered)) then
  fail(E.NAME_IN_USE, {publisher = publisher, by = holder})
end
local ms, reached = string.format('%.0f', clock_ms(now)), last or '0'
local leaves_out = tonumber(first) > (last or 0) + 1
-- Only where instances replicate a number may come from elsewhere, too; those that it leaves out may come once they do.
if leaves_out or call('EXISTS', K.destinations(), K.received()) > 0 then
  reached = string.format('%.0f', open_session_range(publisher, tonumber(first), tonumber(last or 0)))
  publisher_failover().note_predecessor(publisher, place)
end
local session = next_session(tonumber(ms))
if not last or leaves_out then
  local from = string.format('%.0f', first - 1)
  call('HSET', K.publishers(), publisher, from .. ' ' .. (place or ms .. '-0 '))
end
call('HSET', K.sessions(), publisher, session .. ' ' .. ms .. ' ' .. client)
return {session, last or '0', place or '', reached}
