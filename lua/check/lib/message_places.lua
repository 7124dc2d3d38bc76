--- message_places: where many messages of a queue are at once, from the structures that are the truth about it.
--- @include index_places, ref, lease_runs

-- What a command says of each of many fields; mostly the key is not there, which is one look.
local function ask_each(command, key, fields)
  if #fields == 0 or call('EXISTS', key) == 0 then return {} end
  return call(command, key, unpack(fields))
end

local function members_of(queue, refs)
  if not queue.sorted or call('EXISTS', K.places(queue.name)) == 0 then return refs end
  local members = {}
  for i, prefix in ipairs(call('HMGET', K.places(queue.name), unpack(refs))) do members[i] = (prefix or '') .. refs[i] end
  return members
end

local function timetable_scores(kind, queue, refs)
  local members = {}
  for i, ref in ipairs(refs) do members[i] = kind .. queue.name .. ' ' .. ref end
  return ask_each('ZMSCORE', K.due(), members)
end

-- A letter for each place that a message has, the one that counts first: leased, ready, sorted, held, owned
-- elsewhere, delayed, scheduled; then
-- `a` if it is noted ahead. The lease and what is noted come as second and third value.
local function places_of(queue, refs)
  local name, sorted = queue.name, queue.sorted
  local leases, ready = #refs > 0 and lease_values(queue, refs) or {}, ask_each('ZMSCORE', K.ready(name), refs)
  local placed = sorted and ask_each('ZMSCORE', K.sorted(name, V.none), members_of(queue, refs)) or {}
  local held = sorted and ask_each('ZMSCORE', K.held(name), refs) or {}
  local remote = queue.owner and ask_each('ZMSCORE', K.remote(name), refs) or {}
  local delayed, scheduled = timetable_scores('ready ', queue, refs), timetable_scores('scheduled ', queue, refs)
  local noted, letters = ask_each('HMGET', K.ahead(name), refs), {}
  for i = 1, #refs do
    letters[i] = (leases[i] and 'l' or '') .. (ready[i] and 'r' or '') .. (placed[i] and 's' or '')
      .. (held[i] and 'h' or '') .. (remote[i] and 'o' or '') .. (delayed[i] and 'd' or '') .. (scheduled[i] and 'c' or '') .. (noted[i] and 'a' or '')
  end
  return letters, leases, noted
end

-- By topic: the order of the last ID read; nil where the queue has no cursor.
local function read_up_to(queue, known, topic)
  if known[topic] == nil then
    local cursor = call('HGET', K.cursors(queue.name), topic)
    known[topic] = cursor and order_of(string.match(cursor, '^%S+')) or false
  end
  return known[topic]
end
