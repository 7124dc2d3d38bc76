--- logged_messages: whether logs still have messages, for those that tell of many.
--- @include ref

local loaded_logs = {}

-- Where a log begins and how far a walk over it came, as orders. gap: what a look found it to lack, up to `gap_end`.
local function load_log(topic)
  if loaded_logs[topic] then return loaded_logs[topic] end
  local first = call('XRANGE', K.log(topic), '-', '+', 'COUNT', 1)[1]
  local front = string.match(call('HGET', K.retention(), 'log ' .. topic) or '', '(%S+)$')
  local log = {first = first and order_of(first[1]) or '\255', front = front and order_of(front) or '\255',
    gap = '\255', gap_end = ''}
  loaded_logs[topic] = log
  return log
end

-- Refs stand mostly in turn, and each look passes over the deleted entries of a node: it is counted in `looks`.
local function is_present(log, topic, order, id, looks)
  if order >= log.gap and order < log.gap_end then return false end
  local found = call('XRANGE', K.log(topic), id, '+', 'COUNT', 1)[1]
  looks.number = looks.number + 1
  log.gap, log.gap_end = order, found and order_of(found[1]) or '\255'
  return log.gap == log.gap_end
end
