--- queue_history: what a queue's definitions left in its history: where it begins in its topics, and the filters that it had.
--- @include ref

local loaded_histories = {}

local function read_cursors(text)
  local cursors = {}
  for topic, id in string.gmatch(text, '(%S+) (%S+)') do cursors[topic] = order_of(id) end
  return cursors
end

-- starts: topic -> where the queue begins. former: the filters that it had since, each with the cursors up to which it judged.
local function history_of(name)
  if loaded_histories[name] then return loaded_histories[name] end
  local history = {starts = {}, former = {}}
  for _, entry in ipairs(call('XRANGE', K.definitions(name), '-', '+')) do
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    local cursors = read_cursors(fields[F.cursors])
    if fields[F.how] == F.filter then
      history.former[#history.former + 1] = {tree = fields[F.tree], cursors = cursors}
    else
      -- From here on everything was read anew.
      history = {starts = cursors, former = {}}
    end
  end
  loaded_histories[name] = history
  return history
end

local function is_before_start(name, topic, id)
  local start = history_of(name).starts[topic]
  return start ~= nil and order_of(id) <= start
end
