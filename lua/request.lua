--- request: ask the other instances for messages of a queue that somebody here is free for and that wait elsewhere.
--- ARGV now, queue_name
--- FAIL UNKNOWN_QUEUE
--- GIVES how many were asked for
--- FLAGS allow-oom
--- @include clock, fail, room, plan, sort, catching_up, incarnations, owner()
-- Those that have been here for twice the usual time from arrival to settlement, oldest first, as many as there is room; none
-- that was asked for within the last second. Of those asked for in vain some are asked for again, and as many more beyond
-- them: what the owner's subscriptions hold is oldest, and would else be asked for and nothing else.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local plan = queue.sorted and load_plan(queue) or nil
local names = {V.none, unpack(plan and plan.filters or {})}
local room, filters = 0, {}
for _, name in ipairs(names) do
  local open = open_room(queue_name, name, V.batch, nil)
  if open.list[1] then room, filters[#filters + 1] = room + open.total, name end
end
room = math.min(room, V.batch)
if room == 0 or not queue.owner or queue.recovering or queue.backlog == V.no_room then return 0 end
read_on(queue, ms)

local function is_wanted(ref, fields)
  for _, name in ipairs(filters) do
    if name == V.none then return true end
    local document = document_of(plan, ref, fields, 0, ms)
    if judge(plan, name, document) then return true end
  end
  return false
end

call('ZREMRANGEBYSCORE', K.asked(queue_name), '-inf', ms - 10 * V.ask_again)
local usual = math.max(2 * (call('HGET', K.queue(queue_name), F.usual) or 0), V.usual_least)
local before, barrier = order_of(string.format('%.0f-0', math.max(ms - usual, 0))), waiting_barrier(queue)
if barrier and barrier < before then before = barrier end
local refs = call('ZRANGE', K.remote(queue_name), '-', '(' .. before, 'BYLEX', 'LIMIT', 0, 2 * V.batch)
local asked = refs[1] and call('ZMSCORE', K.asked(queue_name), unpack(refs)) or {}
local bookmarks, marks, own = {}, {}, names_of_instance().origin
local again, fresh = room, room
for i = 1, #refs do
  local at = tonumber(asked[i] or nil)
  if at then fresh = fresh + (at <= ms - V.ask_again and 1 or -1) end
end
fresh = math.min(fresh, V.batch)
for i, ref in ipairs(refs) do
  if again <= 0 and fresh <= 0 or plan and plan.spent.work >= V.sort_work then break end
  local at = tonumber(asked[i] or nil)
  local is_due = at and at <= ms - V.ask_again and again > 0 or not at and fresh > 0
  if is_due then
    local topic, id = parse_ref(ref)
    local entry = call('XRANGE', K.log(topic), id, id)[1]
    if entry and is_wanted(ref, entry[2]) then
      if at then again = again - 1 else fresh = fresh - 1 end
      bookmarks[#bookmarks + 1] = topic .. '~' .. owner().counting_of(topic, id, entry[2])
      marks[#marks + 1], marks[#marks + 2] = ms, ref
    end
  end
end
if bookmarks[1] then
  call('ZADD', K.asked(queue_name), unpack(marks))
  call('XADD', K.requests(), 'MAXLEN', '~', V.requests, '*', F.queues, queue_name, F.owner, own, F.bookmarks,
    table.concat(bookmarks, ' '))
end
return #bookmarks
