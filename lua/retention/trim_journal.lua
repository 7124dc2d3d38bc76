--- trim_journal: remove from a queue's journal what tells only of messages that no log has any more: one bounded step.
--- ARGV now, queue_name, after, readers...
--- FAIL UNKNOWN_QUEUE
--- GIVES {where to go on or '' at the end, removed}
--- FLAGS allow-oom
--- @include clock, fail, queue, trim_walk, stream_readers, logged_messages
-- A queue is rebuilt from log and journal, so an entry is needed as long as a log has one of its messages, and until every
-- action is past it. after: '' goes on with the walk that is kept; else an ID. readers: see `read_readers`.
if not load_queue(queue_name) then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local ms = clock_ms(now)
local journal = K.journal(queue_name)
local walk = after == '' and open_walk('journal ' .. queue_name, ms) or {at = after, kept = 0}
local last = '+'
local least
for _, reader in ipairs(read_readers(readers_from)['journal ' .. queue_name] or {}) do
  local place, part = reader_place(reader)
  local order = order_of(place) .. (part and '' or '+')
  if not least or order < least then least, last = order, (part and '(' or '') .. place end
end

local ids, needed, kept, work, told, looks, ended = {}, {}, 0, 0, 0, {number = 0}, false

-- Whether an entry is needed; nil where no walk over the log has come yet, so that all that follows is as new.
local function is_needed(refs)
  for ref in string.gmatch(refs, '%S+') do
    local order, topic = string.match(ref, '^([^/]+)/(.*)$')
    local log = load_log(topic)
    if order >= log.first and order > log.front then return nil end
    if order >= log.first then
      local _, id = parse_ref(ref)
      if is_present(log, topic, order, id, looks) then return true end
    end
  end
  return refs == ''
end

while work < V.trim_refs and #ids < V.batch and not ended do
  local entries = call('XRANGE', journal, '(' .. walk.at, last, 'COUNT', 8)
  ended = #entries < 8
  for _, entry in ipairs(entries) do
    if work >= V.trim_refs then
      ended = false
      break
    end
    local refs = ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == F.refs then refs = entry[2][i + 1] end
    end
    local answer = is_needed(refs)
    told = told + #refs / 24
    if answer == nil then
      ended = true
      break
    end
    ids[#ids + 1], walk.at = entry[1], entry[1]
    if answer then needed[#ids], kept = 'log', kept + 1 end
    work = #ids + 10 * looks.number + told
  end
end
local removed = #ids > 0 and #remove_unneeded(journal, ids, needed) or 0
walk.kept = walk.kept + kept
if walk.name then save_walk(walk, ended, ms) end
return {ended and '' or walk.at, removed}
