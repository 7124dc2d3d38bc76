--- look: which of some messages are available now, and what they are; nothing is changed.
--- ARGV now, queue_name, refs...
--- FAIL UNKNOWN_QUEUE
--- GIVES {ref, fields, deliveries, holder, score, member, ...} of those that are available
--- FLAGS no-writes, allow-oom
--- @include clock, fail, browse
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local browse = open_browse(queue, '')
for i = refs_from, #ARGV do
  local topic, id = parse_ref(ARGV[i])
  local entry = topic and call('XRANGE', K.log(topic), id, id)[1]
  if entry then
    local where = where_is(queue, ARGV[i])
    local enters = where == 'ready' or where == 'sorted' or where == 'held' or where == 'waiting' and (
      not browse.plan.trees.entry or judge(browse.plan, 'entry', document_of(browse.plan, ARGV[i], entry[2], 0, ms)))
    if enters then show(browse, ARGV[i], entry[2], '', '0', ARGV[i], ms) end
  end
end
return browse.found
