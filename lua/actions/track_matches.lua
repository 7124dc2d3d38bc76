--- track_matches: note which messages match the condition of an action now, and move it past them, unless somebody else did.
--- ARGV action, source, expected, cursor, read, duration, values...
--- GIVES 1, or 0 when the cursor was not the expected one
--- @include fail
-- values: fours of what a message is a version of, ms since when it matches or '' when it does not, its ID, its body.
-- What matched before keeps its time.
if (call('HGET', K.action(action), F.cursor .. ' ' .. source) or '0-0') ~= expected then return 0 end
for i = values_from, #ARGV, 4 do
  local member, since, id, body = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if since == '' then
    call('HDEL', K.tracked(action), member)
    call('ZREM', K.waits(action), member)
  else
    local first, told = string.match(call('HGET', K.tracked(action), member) or '', '^(%d+) (%d) ')
    call('HSET', K.tracked(action), member, (first or since) .. ' ' .. (told or '0') .. ' ' .. id .. '\n' .. body)
    if not first then call('ZADD', K.waits(action), since + duration, member) end
  end
end
call('HSET', K.action(action), F.cursor .. ' ' .. source, cursor, F.read .. ' ' .. source, read)
return 1
