--- check_filter_index: a part of a filter's index against all that has its place in a sorted queue.
--- ARGV now, queue_name, filter, source, cursor, repair
--- FAIL UNKNOWN_QUEUE
--- GIVES {cursor of the next part or '0', strangers, messages that are missing}
--- FLAGS allow-oom
--- @include clock, fail, sort_step, set_rank, index_places, timetable
-- source: `index` for what should not be there, `all` for what should. With repair 1 it is mended. The queue may be plain meanwhile.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local plan = queue.sorted and load_plan(queue)
if not plan or not plan.trees[filter] or plan.trees.resort then return {'0', 0, 0} end
local all, index, strangers, missing = K.sorted(queue_name, V.none), K.sorted(queue_name, filter), 0, 0

local function is_built_to(score, member)
  local place = plan.places[filter]
  return not place or place.member ~= '' and not is_before(place.score, place.member, score, member)
end

local function matches(ref)
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return false end
  local attempts = call('HGET', K.attempts(queue_name), ref)
  local deliveries = attempts and tonumber(string.match(attempts, '^%d+')) or 0
  local document = document_of(plan, ref, entry[2], deliveries, ms)
  local found = judge(plan, filter, document)
  charge_work(plan, document, 1)
  return found
end

local scanned = call('ZSCAN', source == 'index' and index or all, cursor, 'COUNT', 25)
for i = 1, #scanned[2], 2 do
  local member, score = scanned[2][i], tonumber(scanned[2][i + 1])
  if source == 'index' then
    local other = call('ZSCORE', all, member)
    if not other or tonumber(other) ~= score then
      strangers = strangers + 1
      if repair == '1' then call('ZREM', index, member) end
    end
  elseif not call('ZSCORE', index, member) and is_built_to(score, member) and matches(ref_of_member(member)) then
    missing = missing + 1
    if repair == '1' then
      call('ZADD', index, scanned[2][i + 1], member)
      add_due(ms, 'dispatch ' .. queue_name, 'NX')
    end
  end
end
return {scanned[1], strangers, missing}
