--- relay_requests: pass on what other instances say of queues, so that it comes to those further on.
--- ARGV rows...
--- GIVES how many were passed on
--- FLAGS allow-oom
--- @include fail, received_positions
-- rows: source, path, the number of fields, then these and their values, as ownership/lib/requests has them, in turn. What was passed on before is passed over.
local relayed, own, i = 0, call('HGET', K.instance(), F.origin), rows_from
while i <= #ARGV do
  local origin, id = string.match(ARGV[i], '^([^~]+)~(%d+%-%d+)$')
  local ms, sequence = string.match(id, '^(%d+)%-(%d+)$')
  local last_ms, last = string.match((received_of('requests', origin)), '^(%d+)%-(%d+)$')
  local is_new = tonumber(ms) > tonumber(last_ms) or ms == last_ms and tonumber(sequence) > tonumber(last)
  local after = i + 2 + 2 * ARGV[i + 2]
  if origin ~= own and is_new then
    call('XADD', K.requests(), 'MAXLEN', '~', V.requests, '*', F.source, ARGV[i], F.path, ARGV[i + 1], unpack(ARGV, i + 3, after))
    note_received('requests', origin, id, '-')
    relayed = relayed + 1
  end
  i = after + 1
end
return relayed
