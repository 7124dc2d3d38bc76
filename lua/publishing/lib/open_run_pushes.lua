--- open_run_pushes: pushing a message that is nothing but a body to the holder of a queue's open run, and beginning one; see open_run.
--- @include entry_ids, delivery_tokens, ref, queue, dispatch, open_run_room

-- Whether what is pushed to a subscription from now on may be leased in one field: it is the only free one, and nothing more is to be
-- written of a delivery than its lease. Who has room for one message alone acknowledges it by a take, which would end the run.
local function may_open_run(queue, subscription, is_only_free)
  return is_only_free and subscription.max > subscription.leased + 1 and subscription.queues == queue.name and queue.backlog == 0
    and not (subscription.bell or queue.progress) and call('EXISTS', K.owners(queue.name)) == 0
end

-- The run of one message that is pushed now; `save_queue` writes it. others: how many its holder is leased beside.
local function begin_open_run(queue, subscription, others, front, ref, token, deadline)
  set_later(queue, F.open_run, subscription.id .. ' ' .. others .. ' ' .. subscription.max .. ' ' .. queue.ratio .. ' ' .. queue.lease .. queue.kind
    .. string.format('%d', front.count) .. ' ' .. front.id .. ' 1 ' .. ref .. ' ' .. string.format('%d', token) .. ' ' .. deadline)
end

-- The instance's field `open <topic>`: the version of the catalog under which one queue alone read that topic and had a run, and its name. So
-- who publishes next finds that queue without a look at routes and at who is free, while the catalog has that version. hint: that
-- field, or nil. begins: whether the queue has a run now.
local function keep_hint(topic, name, catalog, hint, begins)
  local field, text = 'open ' .. topic, catalog .. ' ' .. name
  if not begins then
    call('HDEL', K.instance(), field)
  elseif hint ~= text then
    call('HSET', K.instance(), field, text)
  end
end

-- Pushes to the holder of the run of `name`, which is its only free subscription. Returns the ID; nil, and has written nothing, where there is no run, or
-- anything is not as it was: somebody else wrote into the log, or the clock went back.
local function push_in_open_run(topic, name, body, now)
  local fields = call('HMGET', K.queue(name), F.open_run, F.token, F.skipped)
  if not fields[1] then return nil end
  local start, holder, others, max, period, kind, count, id, number, messages =
    string.match(fields[1], '^((%S+) (%d+) (%d+) %S+ (%d+) (%S+)) (%d+) (%S+) (%d+)(.*)$')
  -- Reading a number from a text takes as long as three tables: each is read once.
  max, number = tonumber(max), tonumber(number)
  local leased, format, log = others + number, string.format, K.log(topic)
  if leased >= max or number >= V.open_run then return nil end
  -- Where the clock went back, it would end before those that were pushed before, for which the timetable has an entry.
  if tonumber(string.match(id, '^%d+')) > now then return nil end
  -- With what the head takes: a large body would be pushed as one that is to be read.
  if 2 * #topic + #name + 100 + #body > V.body_by_ref then return nil end
  -- By XREAD the server looks at the log's last ID first, and mostly at nothing else.
  if call('XREAD', 'COUNT', 1, 'STREAMS', log, id) then return nil end
  local last = tonumber(fields[2])
  local before = token_before({token = last}, now)
  local token, deadline, passed = format('%d', before + 1), period == '0' and '0' or format('%d', now + period), before - last
  local function add(run, new) return run('XADD', log, new, F.body, body) end
  id = record_entries(log, now, 0, 0, add, count + 1)
  if not change_leased(holder, leased, 1) then
    dispatch_or_defer(name, now, 1)
    return id
  end
  local ref = ref_of(topic, id)
  count = format('%d', count + 1)
  call('HSET', K.cursors(name), topic, id .. ' ' .. count)
  local text = start .. ' ' .. count .. ' ' .. id .. ' ' .. format('%d', number + 1) .. messages .. ' ' .. ref .. ' ' .. token .. ' ' .. deadline
  if passed > 0 then
    call('HSET', K.queue(name), F.open_run, text, F.token, token, F.skipped, format('%d', (fields[3] or 0) + passed))
  else
    call('HSET', K.queue(name), F.open_run, text, F.token, token)
  end
  if leased + 1 == max then call('ZREM', K.free(name, V.none), holder) end
  call('RPUSH', K.inbox(holder), name .. ' ' .. token .. ' 1 ' .. deadline .. ' ' .. kind .. ' ' .. ref, body)
  return id
end

-- The same where the hint is still right; see `keep_hint`. catalog: the version now.
local function push_by_hint(topic, catalog, hint, body, now)
  local version, name = string.match(hint, '^(%S+) (.+)$')
  return version == catalog and push_in_open_run(topic, name, body, now) or nil
end
