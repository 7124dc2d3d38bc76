--- open_run_settlement: acknowledging what was pushed in a queue's open run, without writing leases that end at once; see open_run.
--- @include timetable, open_run_room

-- at: where a group stands in ARGV, as settlement_groups has it. False, and has written nothing, where not all of it is leased in an open run
-- of `by`, or something may wait for the room that it frees.
local function acknowledge_in_open_run(at, by)
  local name, number = ARGV[at], tonumber(ARGV[at + 1])
  -- Behind it stands nothing: a reason is written otherwise.
  if not number or number == 0 or #ARGV ~= at + 1 + 2 * number then return false end
  local fields = call('HMGET', K.queue(name), F.open_run, F.acknowledged)
  if not fields[1] then return false end
  local start, holder, others, max, ratio, id, count, messages =
    string.match(fields[1], '^((%S+) (%d+) (%d+) (%S+) %d+ %S+ %d+ (%S+)) (%d+)(.*)$')
  if holder ~= by then return false end
  local find, sub = string.find, string.sub
  for i = at + 2, at + 1 + number do
    local first, last = find(messages, ' ' .. ARGV[i] .. ' ' .. ARGV[i + number] .. ' ', 1, true)
    if not first then return false end
    messages = sub(messages, 1, first - 1) .. sub(messages, find(messages, ' ', last + 1, true) or #messages + 1)
  end
  local topic, leased = string.match(ARGV[at + 2], '/(.*)$'), others + count
  if call('XREAD', 'COUNT', 1, 'STREAMS', K.log(topic), id) or not change_leased(by, leased, -number) then return false end
  local refs = number == 1 and ARGV[at + 2] or table.concat(ARGV, ' ', at + 2, at + 1 + number)
  call('XADD', K.journal(name), '*', F.how, V.acknowledged, F.reason, '', F.refs, refs, F.by, by)
  wake_followers()
  call('HSET', K.queue(name), F.open_run, start .. ' ' .. string.format('%d', count - number) .. messages,
    F.acknowledged, string.format('%d', (fields[2] or 0) + number))
  if leased == tonumber(max) then call('ZADD', K.free(name, V.none), ratio * (leased - number) / max, by) end
  return true
end
