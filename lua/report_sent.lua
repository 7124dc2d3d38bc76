--- report_sent: note up to where a destination has what it is sent: what is behind that is not trimmed.
--- ARGV destination, places...
--- GIVES 1
--- FLAGS allow-oom
--- @include fail
-- places: `marked` and the mark up to which it has everything; `log <topic>` or `journal <queue>` and the ID here up to which it was sent, in turn; behind `@` and an origin the ID there.
call('HSET', K.sent(destination), unpack(ARGV, places_from))
-- Whoever waits for it is woken.
if call('HEXISTS', K.sync(), destination) == 1 then
  call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'sent')
end
return 1
