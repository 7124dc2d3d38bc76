--- queue: a queue's compiled definition; the order of its numbers is schema.COMPILED.
local loaded_queues = {}

local function has_waiting(name)
  return call('ZCARD', K.behind(name)) > 0 or call('ZCARD', K.ready(name)) > 0
end

local function load_queue(name)
  if loaded_queues[name] then return loaded_queues[name] end
  local compiled = call('HGET', K.queue(name), F.compiled)
  if not compiled then return nil end
  local lease, backlog, deliveries, cancels, ratio, turn, once, strict, room = string.match(compiled,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  local queue = {
    name = name, lease = tonumber(lease), backlog = tonumber(backlog), deliveries = tonumber(deliveries),
    cancels = tonumber(cancels), ratio = tonumber(ratio), turn = tonumber(turn), once = once == '1',
    strict = strict == '1', room = tonumber(room),
  }
  loaded_queues[name] = queue
  return queue
end
