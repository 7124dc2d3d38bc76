--- message_place: where a message of a queue is, from the structures that are the truth about it.
--- @include index_places, ref, lease_runs

-- One of the words below and what is known there; nil where the queue never heard of its topic. `waiting` is unread,
-- `settled` is whatever was read, or noted ahead, and is nowhere else. While a queue is rebuilt its cursors say nothing:
-- then both of these are `unknown`.
local function where_is(queue, ref)
  local topic, id = parse_ref(ref)
  local cursor = topic and call('HGET', K.cursors(queue.name), topic)
  if not cursor then return nil end
  local lease = lease_values(queue, {ref})[1]
  if lease then return 'leased', lease end
  if call('ZSCORE', K.ready(queue.name), ref) then return 'ready' end
  if queue.sorted and call('ZSCORE', K.sorted(queue.name, V.none), member_of(queue, ref)) then return 'sorted' end
  if queue.sorted and call('ZSCORE', K.held(queue.name), ref) then return 'held' end
  local due = call('ZSCORE', K.due(), 'ready ' .. queue.name .. ' ' .. ref)
  if due then return 'delayed', due end
  due = call('ZSCORE', K.due(), 'scheduled ' .. queue.name .. ' ' .. ref)
  if due then return 'scheduled', due end
  if queue.owner and call('ZSCORE', K.remote(queue.name), ref) then return V.remote end
  if queue.topic == V.nowhere then return 'unknown' end
  if order_of(id) <= order_of(string.match(cursor, '^%S+')) then return 'settled' end
  if call('HEXISTS', K.ahead(queue.name), ref) == 1 then return 'settled' end
  return 'waiting'
end
