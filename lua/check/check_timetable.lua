--- check_timetable: a part of the timetable: which entries of messages look wrong by themselves, and how many each queue has.
--- ARGV cursor, count, repair
--- GIVES {cursor of the next part or '0', bytes, strays, number, that many `<queue> <delayed> <scheduled>`, `<queue> <ref>`, ...}
--- FLAGS allow-oom
--- @include fail, queue_history, queue, message_life
-- Strays are entries of queues that do not exist; with repair 1 they are removed. `<queue> <ref>`: to be verified.
local scanned, counts, names, out, strays = call('ZSCAN', K.due(), cursor, 'COUNT', count), {}, {}, {}, 0
local bytes, queues = 0, {}

local function is_astray(name, ref, fields)
  if queues[name] == nil then queues[name] = load_queue(name) or false end
  return queues[name] and is_remote(queues[name], ref, fields)
end

for i = 1, #scanned[2], 2 do
  local kind, name, ref = string.match(scanned[2][i], '^(%S+) (%S+) ?(.*)$')
  if kind == 'ready' or kind == 'scheduled' then
    local topic, id = parse_ref(ref)
    if not topic or call('HEXISTS', K.queues(), name) == 0 then
      strays = strays + 1
      if repair == '1' then call('ZREM', K.due(), scanned[2][i]) end
    else
      if not counts[name] then counts[name], names[#names + 1] = {ready = 0, scheduled = 0}, name end
      counts[name][kind] = counts[name][kind] + 1
      local is_outside = is_before_start(name, topic, id)
      local entry = call('XRANGE', K.log(topic), id, id)[1]
      for k = 2, entry and #entry[2] or 0, 2 do bytes = bytes + #entry[2][k] end
      if is_outside or not entry or is_astray(name, ref, entry[2]) then out[#out + 1] = name .. ' ' .. ref end
    end
  end
end
for i, name in ipairs(names) do
  table.insert(out, i, name .. ' ' .. counts[name].ready .. ' ' .. counts[name].scheduled)
end
return {scanned[1], bytes, strays, #names, unpack(out)}
