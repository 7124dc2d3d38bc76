--- expire_by_arrival: where all lives are as long, what is over is found by the order of arrival, from the head on.
--- @include expire_unread, unread_messages

-- What stands at the unread end of the logs and is settled, over, or for another queue; true when there is no more of it.
local function pass_unread_topics(pass)
  local topics, done = unread_topics(pass.queue), true
  for i = 1, #topics, 2 do done = done and pass_unread_topic(pass, topics[i]) end
  return done
end

-- The sets and the logs, one after the other; where a step ended is kept: `<aged> <till> <source> <after>`.
local function pass_by_arrival(pass)
  local queue, name = pass.queue, pass.queue.name
  local state = call('HGET', K.queue(name), F.aged) or '0'
  local aged, till, source, after = string.match(state, '^(%d+) ?(%d*) ?(%d?) ?(.*)$')
  pass.aged, pass.till = tonumber(aged), tonumber(till) or pass.now - queue.life
  if pass.till < pass.aged then pass.till = pass.aged end
  local sources = {{K.ready(name), 'ready'}, {K.held(name), 'held'}, {K.sorted(name, V.none), 'sorted'}}
  local at, last = tonumber(source) or 1, after
  while at <= 3 and not is_pass_spent(pass) do
    local by_arrival = at < 3 or queue.sorted and not pass.plan.trees.priority
    if at == 3 and pass.plan.trees.resort then return false end
    last = by_arrival and expire_set(pass, sources[at][1], sources[at][2], last) or ''
    if last == '' then at = at + 1 end
  end
  local done = at > 3
  done = done and pass_unread_topics(pass)
  call('HSET', K.queue(name), F.aged, done and string.format('%.0f', pass.till)
    or string.format('%.0f %.0f %d %s', pass.aged, pass.till, at, last))
  return done
end

-- ms of the oldest message that no pass has looked at; nil: there is none. A bound that is too low only comes early.
local function oldest_arrival(pass, aged)
  local queue, oldest = pass.queue, nil
  local keys = {K.ready(queue.name), K.held(queue.name)}
  if queue.sorted and not pass.plan.trees.priority then keys[3] = K.sorted(queue.name, V.none) end
  for _, key in ipairs(keys) do
    local from = aged > 0 and '[' .. first_ref_after_ms(aged) or '-'
    local ref = call('ZRANGE', key, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    local ms = ref and tonumber(string.match(ref, '^%l(%d+)'))
    if ms and (not oldest or ms < oldest) then oldest = ms end
  end
  local topics = unread_topics(queue)
  for i = 1, #topics, 2 do
    local cursor = string.match(call('HGET', K.cursors(queue.name), topics[i]) or '0-0', '^%S+')
    local entry = i < 64 and call('XRANGE', K.log(topics[i]), '(' .. cursor, '+', 'COUNT', 1)[1]
    local ms = entry and tonumber(string.match(entry[1], '^%d+')) or i >= 64 and tonumber(topics[i + 1])
    if ms and (not oldest or ms < oldest) then oldest = ms end
  end
  return oldest
end
