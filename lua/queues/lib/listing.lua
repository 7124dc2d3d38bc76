--- listing: up to where the log of a queue with groups is looked through while what waits there stays unread.
--- @include queue, ref, batch, group_state
-- As long as nothing has to wait, reading moves the cursor. From the first message on that has to wait for its group the cursor stays before
-- it, and what follows is listed in its group (group_lists.lua), or noted in `ahead` where it is delivered, or does not enter the queue. So
-- a message that is listed is unread: beyond the cursor, and not in `ahead`. The cursor follows when nothing is listed any more, and in steps
-- when much is noted. Where a message keeps it long, those that wait there are read and get their places, so that what is noted stays
-- bounded by what is listed.
-- The queue's field: the number of the listing, which lists say, too; ID and number of entries up to there, how many messages are listed at most, how
-- many are noted before the cursor is looked after again, `V.listing_*`, the last ref.

-- What the queue's field says, and where its cursor is; nil where nothing is listed. first, last: refs behind and up to which messages may be.
local function read_listing(queue)
  local serial, id, count, total, look, form, last, topic =
    string.match(queue.listed or '', '^(%d+) (%S+) (%d+) (%d+) (%d+) (%d) (%w+/(.+))$')
  if not serial then return nil end
  local read, number = string.match(call('HGET', K.cursors(queue.name), topic) or '0-0 0', '^(%S+) (%d+)$')
  local first = ref_maker(topic)(read)
  if first >= last then return nil end
  return {serial = serial, id = id, count = tonumber(count), total = tonumber(total), look = tonumber(look), topic = topic, form = form, read = read,
    number = tonumber(number), first = first, last = last, marks = {}, is_changed = false}
end

-- Nothing is listed any more. Groups that are known have lists of it.
local function forget_listing(queue)
  for _, state in pairs(queue.group_states or {}) do
    if state and state.listed > 0 then void_list(queue, state) end
  end
  call('HDEL', K.queue(queue.name), F.listed)
  call('UNLINK', K.listed(queue.name))
  queue.listed, queue.entered, queue.list_suffix = nil, '', nil
end

-- The same for whoever gives messages, once a dispatch; `close_listing` writes it. false: nothing is listed.
local function open_listing(queue)
  if queue.listing == nil then
    queue.listing = read_listing(queue) or false
    if not queue.listing and queue.listed then forget_listing(queue) end
  end
  return queue.listing
end

-- The first message that is listed; nil where none is, or too much before it is noted to look for it.
local function oldest_listed(queue)
  local listing = read_listing(queue)
  local id, make_ref = listing and listing.read, ref_maker(listing and listing.topic or '')
  for _ = 1, listing and 4 or 0 do
    local entries, refs = call('XRANGE', K.log(listing.topic), '(' .. id, listing.id, 'COUNT', 64), {}
    for i, entry in ipairs(entries) do refs[i], id = make_ref(entry[1]), entry[1] end
    for i, how in ipairs(refs[1] and call('HMGET', K.ahead(queue.name), unpack(refs)) or {}) do
      if not how then return refs[i] end
    end
    if #entries < 64 then return nil end
  end
  return nil
end

local function listing_text(listing)
  return string.format('%s %s %d %d %d %s %s', listing.serial, listing.id, listing.count, math.max(listing.total, 0), listing.look, listing.form, listing.last)
end

-- Of items that are listed, whether each is still unread, as `is_placed`.
local function note_listed(queue, items)
  local listing, refs, unread = open_listing(queue), {}, {}
  local are_unread = listing and listing.form == V.listing_whole
  for _, item in ipairs(items) do
    local ref = item.ref
    local is_in_reach = listing and ref > listing.first and ref <= listing.last
    item.is_placed = is_in_reach and are_unread
    if is_in_reach and not are_unread then refs[#refs + 1], unread[#unread + 1] = ref, item end
  end
  for from = 1, #refs, 1000 do
    for i, how in ipairs(call('HMGET', K.ahead(queue.name), unpack(refs, from, math.min(from + 999, #refs)))) do
      unread[from + i - 1].is_placed = not how
    end
  end
end

-- Items left their lists, where they were in these. What was unread is noted as delivered: nobody reads it again.
local function note_taken(queue, items)
  local listing = open_listing(queue)
  if not listing then return end
  local marks, first = listing.marks, listing.first
  listing.is_changed = true
  for _, item in ipairs(items) do
    if item.ref > first then
      if item.was_listed then listing.total = listing.total - 1 end
      if item.is_placed then marks[#marks + 1], marks[#marks + 2] = item.ref, V.delivered end
    end
  end
end

-- What was noted in `ahead` before is not known of.
local function begin_listing(queue, reading, at)
  local read, number = reading.ids[at - 1] or reading.from, reading.number + at - 1
  local serial = call('HINCRBY', K.queue(queue.name), F.listings, 1)
  queue.listing = {serial = string.format('%d', serial), id = read, count = number, total = 0, look = V.noted_least, topic = queue.topic,
    form = call('EXISTS', K.ahead(queue.name)) == 0 and V.listing_whole or V.listing_broken,
    read = read, number = number, first = ref_maker(queue.topic)(read), last = '', marks = {}, is_changed = true}
end

-- What was read of the log in one step: some of it is listed now, the rest is delivered, has its place, or does not enter. reading: as
-- `read_grouped` gives it. listed: ref -> true; nil: all of it is. Where nothing is listed yet, the cursor moves up to the first that is.
local function note_reading(queue, reading, listed)
  local refs, noted, last, at = reading.refs, reading.noted, #reading.refs, 1
  if last == 0 then return end
  local listing = open_listing(queue)
  if not listing then
    local passed = {}
    at = (not listed or next(listed)) and 1 or last + 1
    while listed and at <= last and not listed[refs[at]] do at = at + 1 end
    for i = 1, next(noted) and at - 1 or 0 do
      if noted[refs[i]] then passed[#passed + 1] = refs[i] end
    end
    call_in_batches('HDEL', K.ahead(queue.name), passed)
    if at > 1 then call('HSET', K.cursors(queue.name), queue.topic, reading.ids[at - 1] .. ' ' .. string.format('%d', reading.number + at - 1)) end
    if at > last then return end
    begin_listing(queue, reading, at)
    listing = queue.listing
  end
  local marks = listing.marks
  if not listed then listing.total = listing.total + last - at + 1 end
  for i = at, listed and last or 0 do
    local ref = refs[i]
    if listed[ref] then
      listing.total = listing.total + 1
    elseif not noted[ref] then
      marks[#marks + 1], marks[#marks + 2] = ref, V.delivered
    end
  end
  listing.id, listing.count, listing.last, listing.is_changed = reading.ids[last], reading.number + last, refs[last], true
  -- As many as were listed at once may be noted until the cursor follows: when all of them are delivered, it follows in one step.
  listing.look = math.max(listing.look, listing.total)
  queue.listed, queue.entered = listing_text(listing), listing.last
end

-- Moves the cursor over what is noted, a bounded number of entries; where `places` is above 0, over so many that are listed, too, which are
-- read and get their places. Whether it came to one that is listed.
local function walk_listing(queue, listing, places)
  local make_ref, key, id, number = ref_maker(listing.topic), K.ahead(queue.name), listing.read, listing.number
  local passed, ready, step, looked, bytes, is_blocked = {}, {}, 4, 0, 0, false
  while looked < V.listing_walk and bytes < V.bytes / 4 and not is_blocked do
    local entries, refs = call('XRANGE', K.log(listing.topic), '(' .. id, listing.id, 'COUNT', step), {}
    for i, entry in ipairs(entries) do refs[i] = make_ref(entry[1]) end
    local noted = refs[1] and call('HMGET', key, unpack(refs)) or {}
    for i, entry in ipairs(entries) do
      if not noted[i] and #ready >= 2 * places then
        is_blocked = true
        break
      end
      if noted[i] then passed[#passed + 1] = refs[i] else ready[#ready + 1], ready[#ready + 2] = 0, refs[i] end
      id, number, looked = entry[1], number + 1, looked + 1
      for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
    end
    if #entries < step and not is_blocked then
      id, number = listing.id, listing.count
      break
    end
    step = math.min(step * 4, 64)
  end
  call_in_batches('HDEL', key, passed)
  call_in_batches('ZADD', K.ready(queue.name), ready)
  listing.total = listing.total - #ready / 2
  if id ~= listing.read then call('HSET', K.cursors(queue.name), listing.topic, id .. ' ' .. string.format('%d', number)) end
  listing.read, listing.number, listing.first, listing.is_changed = id, number, make_ref(id), true
  return is_blocked
end

-- The cursor follows, as far as that is due. is_idle: nothing was found to be given. What is ready then is to get its place in this call, so that its
-- group keeps its turn.
local function follow_listing(queue, listing, is_idle)
  -- Where nobody else has noted anything, all that is not listed is.
  local is_counted = listing.total > 0 and listing.form == V.listing_whole
  local counted = is_counted and listing.count - listing.number - listing.total or call('HLEN', K.ahead(queue.name))
  if listing.total <= 0 and counted == listing.count - listing.number then
    -- Nothing is listed, and all that is noted is behind the cursor and up to here.
    call('UNLINK', K.ahead(queue.name))
    call('HSET', K.cursors(queue.name), listing.topic, listing.id .. ' ' .. string.format('%d', listing.count))
    listing.read = listing.id
    return
  end
  if listing.total > 0 and counted < listing.look and not is_idle then return end
  if not walk_listing(queue, listing, 0) then return end
  local number = call('HLEN', K.ahead(queue.name))
  -- Messages that keep the cursor get their places where more is noted than is listed.
  if 2 * number > listing.count - listing.number + V.noted_least then
    walk_listing(queue, listing, 100)
    queue.has_unlisted = true
  end
  -- What somebody removed from the log is counted, and not noted.
  listing.look = math.max(listing.look, math.max(counted, number) + V.noted_more)
end

local function close_listing(queue, is_idle)
  local listing = queue.listing or is_idle and queue.listed and open_listing(queue)
  queue.listing = nil
  if not listing then return end
  call_in_batches('HSET', K.ahead(queue.name), listing.marks)
  if listing.is_changed or is_idle then follow_listing(queue, listing, is_idle) end
  if listing.read == listing.id then
    forget_listing(queue)
  elseif listing.is_changed then
    queue.listed = listing_text(listing)
    call('HSET', K.queue(queue.name), F.listed, queue.listed)
  end
end

-- Where nothing more is to be listed, all that is becomes ready, in the order of the log; a bounded step. Whether nothing is listed any more.
local function end_listing(queue)
  local listing = open_listing(queue)
  if not listing or not (listing.form == V.listing_ends or listing.topic ~= queue.topic) then return true end
  listing.form = V.listing_ends
  walk_listing(queue, listing, V.listing_walk)
  close_listing(queue, false)
  return queue.listed == nil
end
