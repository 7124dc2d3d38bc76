--- barrier_delivery: a message that goes to all subscriptions at once, when everything before it is settled.
--- @include sort_step, delivery_element, index_places, watchers, deliverable, delivery_tokens, lease_runs

-- Something has its place, is leased or delayed, so that a barrier behind it has to wait. before: a ref, nil: any place counts.
local function something_placed(queue, plan, before)
  if plan.fresh.indexes[V.none][1] then return true end
  local first = call('ZRANGE', K.sorted(queue.name, V.none), 0, 0)[1]
  if first and not (before and before < first) or number_leased(queue.name) > 0 then return true end
  return tonumber(call('HGET', K.queue(queue.name), F.delayed) or 0) > 0
end

-- Delivery 0 says that it is a barrier: there is no lease, and nothing to acknowledge. own: the subscription whose
-- messages are returned; its barriers are, too, at the end of `out`, since they come before what it is given next.
local function send_barrier(queue, plan, ref, fields, members, now, own, out)
  keep_tokens(queue, token_before(queue, now), 1)
  local token = queue.token
  local head, body = pushed_element(queue, token, '0', '0', ref, fields)
  local document = document_of(plan, ref, fields, 0, now)
  for _, id in ipairs(members) do
    local filter = call('HGET', K.subscription(id), F.filter) or V.none
    if filter == V.none or judge(plan, filter, document) then
      if own and own.id == id then
        out[#out + 1], out[#out + 2] = element_of(queue, token, '0', '0', ref, fields)
      else
        call('RPUSH', K.inbox(id), head, body)
      end
      call('RPUSH', K.barriers(id), queue.name .. ' ' .. token .. ' ' .. ref)
      call('LTRIM', K.barriers(id), -V.barriers_kept, -1)
    end
  end
  charge_work(plan, document, 4 * #members)
end

-- The next barrier, if it is its turn; true when it left the queue. Without any subscription it waits.
local function pass_barrier(queue, plan, now, own, out)
  local ref = queue.backlog ~= V.no_room and waiting_barrier(queue)
  if not ref or something_placed(queue, plan) or first_ready(queue, 1, ref)[1] then return false end
  -- Of what other instances own, too, all before it must be settled.
  if queue.owner and call('ZRANGE', K.remote(queue.name), '-', '(' .. ref, 'BYLEX', 'LIMIT', 0, 1)[1] then return false end
  local members = call('SMEMBERS', K.members(queue.name))
  if #members == 0 then return false end
  local topic, id = parse_ref(ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  call('ZREM', K.held(queue.name), ref)
  if entry and fate_of(queue, ref, entry[2], true, now) then
    expire_read(queue, {ref})
  else
    if entry then send_barrier(queue, plan, ref, entry[2], members, now, own, out) end
    -- It may have been delivered before it became a barrier.
    call('HDEL', K.attempts(queue.name), ref)
    write_journal(queue.name, entry and V.barrier or V.missing, '', {ref}, '')
    notify_watchers(queue, {ref})
  end
  release_held(queue)
  return true
end
