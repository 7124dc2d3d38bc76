--- report_sent: note up to where a destination has what it is sent: what is behind that is not trimmed.
--- ARGV destination, places...
--- GIVES 1
--- FLAGS allow-oom
--- @include fail, unsent_entries
-- places: `marked` and the mark up to which it has everything; `log <topic>` or `journal <queue>` and the ID here up to which it was sent, in turn; behind `@` and an origin the ID there.
-- With `catalog`, the version by which it carries what is named, and nothing else any more.
local named = {}
for i = places_from, #ARGV, 2 do named[ARGV[i]] = true end
if named[F.catalog] then
  for _, stream in ipairs(call('HKEYS', K.sent(destination))) do
    if is_stream(stream) and not named[stream] then call('HDEL', K.sent(destination), stream) end
  end
end
call('HSET', K.sent(destination), unpack(ARGV, places_from))
-- Whoever waits for it is woken.
if call('HEXISTS', K.sync(), destination) == 1 then
  call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'sent')
end
return 1
