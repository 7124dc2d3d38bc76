--- scan_foreign_entries: find entries that somebody else wrote into the logs, so that queues read them and later IDs lie above.
--- ARGV now, topics...
--- GIVES the last ID of each topic, '' where its log is empty
--- FLAGS allow-oom
--- @include clock, fail, ref, fan_out, plain_dispatch, route, timetable
-- topics: pairs of a topic and the last ID that the caller has seen there; nothing is done where that is still the last.
local ms = clock_ms(now)
local lasts = {}
for i = topics_from, #ARGV, 2 do
  local topic, seen = ARGV[i], ARGV[i + 1]
  local entry = call('XREVRANGE', K.log(topic), '+', '-', 'COUNT', 1)[1]
  local last = entry and entry[1] or ''
  lasts[#lasts + 1] = last
  if last ~= seen and last ~= '' then
    local order = order_of(last)
    if order > order_of(call('GET', K.clock()) or '0-0') then call('SET', K.clock(), last) end
    local route = call('HGET', K.routes(), topic) or ''
    if keeps_records(route) and call('HGET', K.sow(topic), F.read_to) ~= last then
      add_due(ms, 'records ' .. topic, 'LT')
    end
    serve_queues(route, topic, 0, ms, V.batch, dispatch_soon)
  end
end
return lasts
