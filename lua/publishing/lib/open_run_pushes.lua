--- open_run_pushes: pushing a message that is nothing but a body to the holder of a queue's open run, and beginning one; see open_run.
--- @include entry_ids, delivery_tokens, ref, queue

-- Whether what is pushed to a subscription from now on may be leased in one field: it is the only free one, and nothing more is to be
-- written of a delivery than its lease. Who has room for one message alone acknowledges it by a take, which would end the run.
local function may_open_run(queue, subscription, is_only_free)
  return is_only_free and subscription.max > subscription.leased + 1 and subscription.queues == queue.name and queue.lease > 0 and queue.backlog == 0
    and not (subscription.bell or queue.progress) and call('EXISTS', K.owners(queue.name)) == 0
end

-- The run of one message that is pushed now; `save_queue` writes it. others: how many its holder is leased beside.
local function begin_open_run(queue, subscription, others, front, ref, token, deadline)
  set_later(queue, F.open_run, subscription.id .. ' ' .. others .. ' ' .. subscription.max .. ' ' .. queue.ratio .. ' ' .. queue.lease .. queue.kind
    .. string.format('%d', front.count) .. ' ' .. front.id .. ' 1 ' .. ref .. ' ' .. string.format('%d', token) .. ' ' .. deadline)
end

-- holder: the queue's only free subscription. Returns the ID; nil, and has written nothing, where there is no open run of it, or anything is
-- not as it was: somebody else wrote into the log, or the clock went back.
local function push_in_open_run(topic, name, holder, body, now)
  local fields = call('HMGET', K.queue(name), F.open_run, F.token, F.skipped)
  if not fields[1] then return nil end
  local start, of, others, max, period, kind, count, id, number, messages =
    string.match(fields[1], '^((%S+) (%d+) (%d+) %S+ (%d+) (%S+)) (%d+) (%S+) (%d+)(.*)$')
  local leased, format = others + number, string.format
  if of ~= holder or leased >= tonumber(max) or tonumber(number) >= V.open_run then return nil end
  -- Where the clock went back, it would end before those that were pushed before, for which the timetable has an entry.
  if tonumber(string.match(id, '^%d+')) > now then return nil end
  local entry, log = call('XREVRANGE', K.log(topic), '+', '-', 'COUNT', 1)[1], K.log(topic)
  if not entry or entry[1] ~= id or tonumber(call('HGET', K.subscription(holder), F.leased) or nil) ~= leased then return nil end
  -- With what the head takes: a large body would be pushed as one that is to be read.
  if 2 * #topic + #name + 100 + #body > V.body_by_ref then return nil end
  local before = token_before({token = fields[2]}, now)
  local token, deadline = format('%d', before + 1), format('%d', now + period)
  local head = name .. ' ' .. token .. ' 1 ' .. deadline .. ' ' .. kind .. ' '
  local function add(run, new) return run('XADD', log, new, F.body, body) end
  id = record_entries(log, now, 0, 0, add, count + 1)
  local ref, passed = ref_of(topic, id), before - fields[2]
  count, leased = format('%d', count + 1), leased + 1
  call('HSET', K.cursors(name), topic, id .. ' ' .. count)
  local text = start .. ' ' .. count .. ' ' .. id .. ' ' .. format('%d', number + 1) .. messages .. ' ' .. ref .. ' ' .. token .. ' ' .. deadline
  if passed > 0 then
    call('HSET', K.queue(name), F.open_run, text, F.token, token, F.skipped, format('%d', (fields[3] or 0) + passed))
  else
    call('HSET', K.queue(name), F.open_run, text, F.token, token)
  end
  call('HSET', K.subscription(holder), F.leased, leased)
  if leased == tonumber(max) then call('ZREM', K.free(name, V.none), holder) end
  call('RPUSH', K.inbox(holder), head .. ref, body)
  return id
end
