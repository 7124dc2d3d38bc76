--- read_available: which of some messages are available now, and what they are; large ones end it early. Nothing is changed.
--- ARGV now, queue_name, refs...
--- FAIL UNKNOWN_QUEUE
--- GIVES {number of refs looked at, ref, fields, deliveries, holder, score, member, ...} of those that are available
--- FLAGS no-writes, allow-oom
--- @include clock, fail, browse_step
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local browse, looked = open_browse(queue, ''), 0
for i = refs_from, #ARGV do
  local topic, id = parse_ref(ARGV[i])
  local entry = topic and call('XRANGE', K.log(topic), id, id)[1]
  if entry then
    local where = where_is(queue, ARGV[i])
    local here = where == 'ready' or where == 'sorted' or where == 'held'
    if here or where == 'waiting' and will_enter(queue, browse.plan, ARGV[i], entry[2], ms) then
      add_browsed(browse, ARGV[i], entry[2], '', '0', ARGV[i], ms)
    end
  end
  looked = looked + 1
  if is_browse_over(browse) then break end
end
return {looked, unpack(browse.found)}
