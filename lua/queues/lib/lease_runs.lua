--- lease_runs: leases of messages of one topic that a subscription was given at once: one record for all of them.
-- A run is a member of `runs`, and its refs are one text, padded to one width, so that the i-th is a part of it. Which of them are
-- leased in it no more says a mask, a character each, 1 for those; where there is none, all are. Its i-th message has the token of its
-- first one + i - 1, and is delivered for the first time. A message that is extended gets a lease of its own.
-- What was read from the log in one call follows each other there, so these runs do not overlap. Others are scattered: their messages
-- stand in the order in which they were given, by priority; a space before the member keeps these together. There are few of them at a
-- time, so that a call that looks for a message can read them all.
--- @include batch, queue, ref, group_state(), open_run()

local loaded_lease_runs = {}

local function read_run(member)
  local run = loaded_lease_runs[member]
  if run then return run end
  local space, topic, order, token, count, holder, deadline, length =
    string.match(member, '^( ?)(%S+) (%S+) (%d+) (%d+) (%S+) (%d+) (%d+)$')
  run = {
    member = member, first = order .. '/' .. topic, token = tonumber(token), name = token, count = tonumber(count), holder = holder,
    deadline = tonumber(deadline), length = tonumber(length), at = 1, scattered = space ~= '', refs = false, mask = false, width = false,
    padded = false, ending = false, last = false,
  }
  loaded_lease_runs[member] = run
  return run
end

-- refs, mask: as `run_refs` has them.
local function take_in_refs(run, refs, mask)
  run.refs, run.mask = refs, mask or string.rep('0', run.count)
  -- Somebody removed them: nothing is leased in it then, and a check finds it.
  if not refs then run.refs, run.mask = string.rep('~ ', run.count - 1) .. '~', string.rep('1', run.count) end
  run.width = (#run.refs + 1) / run.count
  run.padded = string.find(run.refs, '  ', 1, true) or string.byte(run.refs, -1) == 32
end

local function load_run_refs(queue_name, run)
  if run.refs then return end
  local found = call('HMGET', K.run_refs(queue_name), run.name, run.name .. ' m')
  take_in_refs(run, found[1], found[2])
end

local function load_refs_of_runs(queue_name, runs)
  if not runs[2] then
    if runs[1] then load_run_refs(queue_name, runs[1]) end
    return
  end
  local names = {}
  for i, run in ipairs(runs) do names[2 * i - 1], names[2 * i] = run.name, run.name .. ' m' end
  local found = call('HMGET', K.run_refs(queue_name), unpack(names))
  for i, run in ipairs(runs) do
    if not run.refs then take_in_refs(run, found[2 * i - 1], found[2 * i]) end
  end
end

local function ref_in_run(run, i)
  local ref = string.sub(run.refs, (i - 1) * run.width + 1, i * run.width - 1)
  return string.byte(ref, -1) == 32 and string.match(ref, '^%S+') or ref
end

local function is_in_run(run, i)
  return string.byte(run.mask, i) == 48
end

local function value_in_run(run, i)
  run.ending = run.ending or ' ' .. run.holder .. ' 1 ' .. string.format('%d', run.deadline) .. ' ' .. string.format('%d', run.length)
  return string.format('%d', run.token + i - 1) .. run.ending
end

-- The refs from one to another of them, as a journal has them.
local function text_of_refs(run, first, last)
  local text = string.sub(run.refs, (first - 1) * run.width + 1, last * run.width - 1)
  if not run.padded then return text end
  local ending = #text
  while string.byte(text, ending) == 32 do ending = ending - 1 end
  return (string.gsub(string.sub(text, 1, ending), '  +', ' '))
end

-- Where a ref is in a run: mostly behind the one that was asked for before. In a scattered one it is looked for nowhere else.
local function find_in_run(run, ref)
  if ref_in_run(run, run.at) == ref then return run.at end
  local low, high = 1, run.scattered and 0 or run.count
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local found = ref_in_run(run, middle)
    if found == ref then return middle end
    if found < ref then low = middle + 1 else high = middle - 1 end
  end
  return nil
end

-- Of what is leased in scattered runs the run of each ref, and where in it; they are read once a call.
local function read_scattered(queue)
  local found = {runs = {}, places = {}}
  for _, member in ipairs(call('ZRANGE', K.runs(queue.name), '[ ', '(!', 'BYLEX')) do
    local run, i = read_run(member), 0
    load_run_refs(queue.name, run)
    for ref in string.gmatch(run.refs, '%S+') do
      i = i + 1
      if is_in_run(run, i) then found.runs[ref], found.places[ref] = run, i end
    end
  end
  queue.scattered = found
  return found
end

-- Runs of one topic that are not scattered follow each other in its order.
local function find_in_ordered_runs(queue, ref)
  local order, topic = string.match(ref, '^(%l%d+%l%d+)/(.*)$')
  if not order then return nil end
  local member = call('ZRANGE', K.runs(queue.name), '[' .. topic .. ' ' .. order .. '!', '[' .. topic .. ' ', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
  if not member then return nil end
  local run = read_run(member)
  load_run_refs(queue.name, run)
  run.last = run.last or ref_in_run(run, run.count)
  if ref > run.last then return nil end
  return run, find_in_run(run, ref)
end

-- The run that holds a message, and where in it; nil: none does. One that was given back and is leased again is also in its former run,
-- and there no more leased.
local function run_of(queue, ref)
  if not queue.in_runs then return nil end
  local run = queue.last_run
  local i = run and (run.scattered or ref >= run.first and ref <= run.last) and find_in_run(run, ref)
  if not i or not is_in_run(run, i) then
    local scattered = queue.scattered or read_scattered(queue)
    run, i = scattered.runs[ref], scattered.places[ref]
    if not run then run, i = find_in_ordered_runs(queue, ref) end
  end
  if not i or not is_in_run(run, i) then return nil end
  queue.last_run, run.at = run, math.min(i + 1, run.count)
  return run, i
end

-- Of each ref the lease as `parse_lease` reads it, whatever its form, or false.
local function lease_values(queue, refs)
  local values = call('HMGET', K.leases(queue.name), unpack(refs))
  for k = 1, queue.pushed and #queue.pushed or 0, 2 do
    for i, ref in ipairs(refs) do
      if ref == queue.pushed[k] then values[i] = queue.pushed[k + 1] end
    end
  end
  if not queue.in_runs then return values end
  for i, ref in ipairs(refs) do
    local run, at
    if not values[i] then run, at = run_of(queue, ref) end
    if run then values[i] = value_in_run(run, at) end
  end
  return values
end

-- How many messages of a queue are leased; the anchor is no lease.
local function number_leased(name)
  local queue = loaded_queues[name]
  local in_runs, pushed = queue and queue.in_runs, queue and queue.pushed
  if not queue then
    local fields = call('HMGET', K.queue(name), F.in_runs, F.open_run)
    in_runs, pushed = fields[1], fields[2] and open_run().leases_in_open_run(fields[2])
  end
  return math.max(call('HLEN', K.leases(name)) - 1, 0) + (in_runs or 0) + (pushed and #pushed / 2 or 0)
end

-- Counts the messages that are leased in runs, for `save_queue`.
local function count_in_runs(queue, change)
  local number = (queue.in_runs or 0) + change
  queue.in_runs = number > 0 and number or nil
  set_later(queue, F.in_runs, number)
end

-- Writes what is leased in some runs yet; those of which nothing is end.
local function save_runs(queue, runs)
  local run = runs[1]
  if not runs[2] and not string.find(run.mask, '0', 1, true) then
    call('ZREM', K.runs(queue.name), run.member)
    return call('HDEL', K.run_refs(queue.name), run.name, run.name .. ' m')
  end
  local masks, ended, names = {}, {}, {}
  for _, run in ipairs(runs) do
    if string.find(run.mask, '0', 1, true) then
      masks[#masks + 1], masks[#masks + 2] = run.name .. ' m', run.mask
    else
      ended[#ended + 1], names[#names + 1], names[#names + 2] = run.member, run.name, run.name .. ' m'
    end
  end
  call_in_batches('HSET', K.run_refs(queue.name), masks)
  call_in_batches('ZREM', K.runs(queue.name), ended)
  call_in_batches('HDEL', K.run_refs(queue.name), names)
end

-- Those of some refs that are leased in runs are so no more. Returns how many.
local function leave_runs(queue, refs)
  local touched, count = {}, 0
  for _, ref in ipairs(queue.in_runs and refs or {}) do
    local run, i = run_of(queue, ref)
    if run then
      if not run.left then
        run.left = {string.byte(run.mask, 1, -1)}
        touched[#touched + 1] = run
      end
      if run.left[i] == 48 then run.left[i], count = 49, count + 1 end
    end
  end
  for _, run in ipairs(touched) do
    local parts = {}
    for i, byte in ipairs(run.left) do parts[i] = string.char(byte) end
    run.mask, run.left = table.concat(parts), nil
  end
  if touched[1] then save_runs(queue, touched) end
  if count > 0 then
    count_in_runs(queue, -count)
    save_queue(queue)
  end
  return count
end

-- Ends the leases of some refs, whatever their form; nothing else does, so what groups count is right.
local function remove_leases(queue, refs, values)
  if queue.concurrency then group_state().end_group_leases(queue, refs, values) end
  local left = #refs
  for first = 1, #refs, 1000 do
    left = left - call('HDEL', K.leases(queue.name), unpack(refs, first, math.min(first + 999, #refs)))
  end
  if left > 0 then leave_runs(queue, refs) end
end

-- Refs of one topic as one text, padded to one width.
local function text_of_equal_width(refs)
  local longest, is_even = #refs[1], true
  for _, ref in ipairs(refs) do
    if #ref ~= longest then longest, is_even = math.max(longest, #ref), false end
  end
  if is_even then return table.concat(refs, ' ') end
  local padded = {}
  for i, ref in ipairs(refs) do padded[i] = #ref == longest and ref or ref .. string.rep(' ', longest - #ref) end
  return table.concat(padded, ' ')
end

-- The same of entries of one log. Mostly their IDs have one form, so that one look at all of them makes them refs.
local function refs_of_entries(entries, topic)
  local first, last = entries[1][1], entries[#entries][1]
  local sequence = string.find(first, '-', 1, true) + 1
  if #first == #last and string.sub(first, 1, sequence - 1) == string.sub(last, 1, sequence - 1) then
    -- They are of one millisecond, and since they rise all are as long as these two.
    local sequences, sub = {}, string.sub
    for i = 1, #entries do sequences[i] = sub(entries[i][1], sequence) end
    local start = string.char(94 + sequence) .. sub(first, 1, sequence - 2) .. string.char(97 + #first - sequence)
    return start .. table.concat(sequences, '/' .. topic .. ' ' .. start) .. '/' .. topic
  end
  local ids, width, is_even = {}, #first, true
  for i, entry in ipairs(entries) do
    ids[i] = entry[1]
    is_even = is_even and #entry[1] == width
  end
  local digits = #string.match(ids[1], '^%d+')
  if is_even and #string.match(ids[#ids], '^%d+') == digits then
    local form = string.format('%c%%1%c%%2/', 96 + digits, 95 + width - digits) .. string.gsub(topic, '%%', '%%%%')
    return (string.gsub(table.concat(ids, ' '), '(%d+)%-(%d+)', form))
  end
  local refs, make_ref = {}, ref_maker(topic)
  for i, id in ipairs(ids) do refs[i] = make_ref(id) end
  return text_of_equal_width(refs)
end

-- Whether so many more messages may be leased in a scattered run.
local function may_be_scattered(queue, count)
  return (queue.in_runs or 0) + count <= V.scattered
end

-- text: the refs, `count` of them in the queue's topic, padded to one width. How many are in runs now, `save_queue` writes.
local function add_run(queue, text, count, holder, token, deadline, scattered)
  local name, order = string.format('%d', token), string.sub(text, 1, string.find(text, '/', 1, true) - 1)
  queue.scattered = nil
  call('ZADD', K.runs(queue.name), 0, (scattered and ' ' or '') .. queue.topic .. ' ' .. order .. ' ' .. name .. ' ' .. count .. ' ' .. holder .. ' ' .. deadline .. ' ' .. queue.lease)
  call('HSET', K.run_refs(queue.name), name, text)
  count_in_runs(queue, count)
end

-- A run by what its holder names it by: topic, order of its first message, token. nil: it is over.
local function named_run(queue, name)
  local key, space, other = K.runs(queue.name), '', ' '
  if queue.sorted then space, other = ' ', '' end
  local member = call('ZRANGE', key, '[' .. space .. name .. ' ', '(' .. space .. name .. '!', 'BYLEX', 'LIMIT', 0, 1)[1]
    or call('ZRANGE', key, '[' .. other .. name .. ' ', '(' .. other .. name .. '!', 'BYLEX', 'LIMIT', 0, 1)[1]
  return member and read_run(member)
end

-- The same of several, each a run or false: those of one topic mostly are neighbours, so that one look finds all.
local function named_runs(queue, names)
  if not names[2] then return {named_run(queue, names[1]) or false} end
  local members, runs = {}, {}
  if not queue.sorted then
    local first, last = names[1], names[1]
    for _, name in ipairs(names) do
      if name < first then first = name elseif name > last then last = name end
    end
    local found = call('ZRANGE', K.runs(queue.name), '[' .. first .. ' ', '(' .. last .. '!', 'BYLEX', 'LIMIT', 0, 4 * #names)
    for _, member in ipairs(found) do members[string.match(member, '^%S+ %S+ %d+')] = member end
  end
  for i, name in ipairs(names) do runs[i] = members[name] and read_run(members[name]) or named_run(queue, name) or false end
  return runs
end

-- Some runs behind a member, '' from the first one, at most `most`.
local function runs_behind(name, member, most)
  local runs = {}
  local found = call('ZRANGE', K.runs(name), member == '' and '-' or '(' .. member, '+', 'BYLEX', 'LIMIT', 0, most)
  for i, each in ipairs(found) do runs[i] = read_run(each) end
  return runs
end

-- Refs and values in turn of what is leased in a run, as a scan of leases gives them; of the first `most`, where that is said. The second
-- value tells whether there are more.
local function leases_in_run(name, run, most)
  load_run_refs(name, run)
  local found, last = {}, 2 * (most or run.count)
  for i = 1, run.count do
    if is_in_run(run, i) then
      if #found == last then return found, true end
      found[#found + 1], found[#found + 2] = ref_in_run(run, i), value_in_run(run, i)
    end
  end
  return found, false
end

-- How many messages are leased in runs, and the runs whose refs are gone; nil where they are too many to be counted in one call.
local function count_runs(name)
  if call('ZCARD', K.runs(name)) > 5000 then return nil end
  local number, broken = 0, {}
  for _, run in ipairs(runs_behind(name, '', 5000)) do
    local mask = call('HGET', K.run_refs(name), run.name .. ' m')
    if call('HEXISTS', K.run_refs(name), run.name) == 0 then
      broken[#broken + 1] = run.member
    else
      number = number + (mask and select(2, string.gsub(mask, '0', '')) or run.count)
    end
  end
  return number, broken
end
