--- index_building: a filter's index of what had its place before anybody asked for that filter, built in steps.
--- @include sort_step, set_rank, index_places

local function build_index_step(queue, plan, id, now)
  local all, places, field = K.sorted(queue.name, V.none), {}, 'place ' .. id
  local place = plan.places[id]
  local from = place.member == '' and 0 or rank_after(all, place.score, place.member)
  local page = call('ZRANGE', all, from, from + 63, 'WITHSCORES')
  local last = -1
  for i = 1, #page, 2 do
    local ref = ref_of_member(page[i])
    local topic, entry_id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), entry_id, entry_id)[1]
    local document = entry and document_of(plan, ref, entry[2], 0, now)
    if document and judge(plan, id, document) then add_place(places, page[i + 1], page[i]) end
    if document then charge_work(plan, document, 1) end
    last = i
    if plan.spent.work >= V.sort_work then break end
  end
  call_in_batches('ZADD', K.sorted(queue.name, id), places)
  if #page < 128 and last == #page - 1 then
    plan.places[id] = nil
    call('HDEL', K.filters(queue.name), field)
  else
    plan.places[id] = {score = tonumber(page[last + 1]), member = page[last]}
    call('HSET', K.filters(queue.name), field, page[last + 1] .. ' ' .. page[last])
  end
end
