--- closed_queue: the keys of a queue in scripts that write: no key of it is come to before its open run has ended.
--- @include open_run

-- Queues of which no run is open any more, in this call.
local closed_queues = {}

-- The key in which all keys of a queue begin; ampsq/protocol/scripts.py writes it in place of that.
local function closed_queue(name)
  local key = K.queue(name)
  if not closed_queues[key] then
    closed_queues[key] = true
    local text = call('HGET', key, F.open_run)
    if text then end_open_run(name, text) end
  end
  return key
end
