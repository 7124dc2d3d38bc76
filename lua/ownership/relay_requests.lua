--- relay_requests: pass on what other instances ask for, so that it comes to owners further on.
--- ARGV rows...
--- GIVES how many were passed on
--- FLAGS allow-oom
--- @include fail, received_positions
-- rows: source, path, queue, who asks, rooms, heard, bookmarks, in turn. What was passed on before is passed over.
local relayed, own = 0, call('HGET', K.instance(), F.origin)
for i = rows_from, #ARGV, 7 do
  local origin, id = string.match(ARGV[i], '^([^~]+)~(%d+%-%d+)$')
  local ms, sequence = string.match(id, '^(%d+)%-(%d+)$')
  local last_ms, last = string.match((received_of('requests', origin)), '^(%d+)%-(%d+)$')
  local is_new = tonumber(ms) > tonumber(last_ms) or ms == last_ms and tonumber(sequence) > tonumber(last)
  if origin ~= own and is_new then
    call('XADD', K.requests(), 'MAXLEN', '~', V.requests, '*', F.queues, ARGV[i + 2], F.owner, ARGV[i + 3], F.rooms,
      ARGV[i + 4], F.heard, ARGV[i + 5], F.bookmarks, ARGV[i + 6], F.source, ARGV[i], F.path, ARGV[i + 1])
    note_received('requests', origin, id, '-')
    relayed = relayed + 1
  end
end
return relayed
