--- queue: a queue's compiled definition: the numbers of schema.COMPILED, then its topic if it has one alone.
local loaded_queues = {}

local function load_queue(name)
  if loaded_queues[name] then return loaded_queues[name] end
  local compiled = call('HGET', K.queue(name), F.compiled)
  if not compiled then return nil end
  local lease, backlog, deliveries, cancels, ratio, turn, once, strict, room, topic = string.match(compiled,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%S*)$')
  local queue = {
    name = name, lease = tonumber(lease), backlog = tonumber(backlog), deliveries = tonumber(deliveries),
    cancels = tonumber(cancels), ratio = tonumber(ratio), turn = tonumber(turn), once = once == '1',
    strict = strict == '1', room = tonumber(room), topic = topic,
  }
  loaded_queues[name] = queue
  return queue
end
