--- timetable_index: what comes back later, or was published for later: stretches of messages in the timetable.

-- A timetable with few entries is read once a call: queue -> its refs.
local loaded_due = {}

local function load_timetable()
  loaded_due.done = true
  if call('ZCARD', K.due()) > V.batch then return end
  loaded_due.refs = {}
  for _, member in ipairs(call('ZRANGE', K.due(), 0, -1)) do
    local kind, name, ref = string.match(member, '^(%l+) (%S+) (.+)$')
    if ref then
      loaded_due.refs[name] = loaded_due.refs[name] or {}
      loaded_due.refs[name][ref] = kind == 'ready' and 'delayed' or kind
    end
  end
end

-- What comes back later, or was published for later: index -> which of the two.
local function find_in_timetable(queue, refs)
  if not loaded_due.done then load_timetable() end
  local found, known, later = {}, loaded_due.refs and loaded_due.refs[queue.name], {}
  for i = 1, known and #refs or 0 do found[i] = known[refs[i]] or false end
  if loaded_due.refs then return found end
  for i, ref in ipairs(refs) do
    later[2 * i - 1], later[2 * i] = 'ready ' .. queue.name .. ' ' .. ref, 'scheduled ' .. queue.name .. ' ' .. ref
  end
  local scores = call('ZMSCORE', K.due(), unpack(later))
  for i = 1, #refs do found[i] = scores[2 * i - 1] and 'delayed' or scores[2 * i] and 'scheduled' end
  return found
end

-- Whether any message of a queue may be there.
local function may_be_in_timetable(queue)
  if not loaded_due.done then load_timetable() end
  return not loaded_due.refs or loaded_due.refs[queue.name] ~= nil
end
