--- queue: a queue's compiled definition: the numbers of schema.COMPILED, then its topic if it has one alone.
local loaded_queues = {}

-- sorted: the filters of a queue that judges its messages, `none` first; nil of a plain one.
local function load_queue(name)
  if loaded_queues[name] then return loaded_queues[name] end
  local fields = call('HMGET', K.queue(name), F.compiled, F.sorted, F.watched)
  if not fields[1] then return nil end
  local lease, backlog, deliveries, cancels, ratio, turn, once, strict, room, depth, topic = string.match(fields[1],
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%S*)$')
  local queue = {
    name = name, lease = tonumber(lease), backlog = tonumber(backlog), deliveries = tonumber(deliveries),
    cancels = tonumber(cancels), ratio = tonumber(ratio), turn = tonumber(turn), once = once == '1',
    strict = strict == '1', room = tonumber(room), depth = tonumber(depth), topic = topic,
    sorted = fields[2], watched = fields[3],
  }
  loaded_queues[name] = queue
  return queue
end
