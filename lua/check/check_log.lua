--- check_log: one page of a topic's log: where each of its messages is in a queue; nothing is changed.
--- ARGV queue_name, topic, after, until_id
--- FAIL UNKNOWN_QUEUE
--- GIVES {`after` of the next page or '', the refs, a letter each}
--- FLAGS no-writes, allow-oom
--- @include fail, queue, message_places
-- Letters: `w` waiting, `a` noted ahead and nowhere else, `x` read and nowhere, `l` leased, `o` in one other place, `!` where no
-- message should be, whatever the journal says.
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local cursor = read_up_to(queue, {}, topic)
if not cursor then return {'', '', ''} end
local make_ref, refs, bytes, step, ended = ref_maker(topic), {}, 0, 16, false
-- Bodies come along: the steps grow only while they turn out small. Half a batch: each message is looked for everywhere.
local most = V.batch / 2
while not ended and #refs < most and bytes < V.bytes / 4 do
  local entries = call('XRANGE', K.log(topic), '(' .. after, until_id, 'COUNT', step)
  for _, entry in ipairs(entries) do
    refs[#refs + 1], after = make_ref(entry[1]), entry[1]
    for k = 2, #entry[2], 2 do bytes = bytes + #entry[2][k] end
  end
  ended = #entries < step
  step = math.max(4, math.min(most - #refs, math.floor(V.bytes * #refs / (8 * math.max(bytes, 1)))))
end
if #refs == 0 then return {'', '', ''} end
local letters, codes = places_of(queue, refs), {}
for i, ref in ipairs(refs) do
  local read = string.match(ref, '^[^/]+') <= cursor
  local noted, live = string.sub(letters[i], -1) == 'a', string.sub(letters[i], 1, 1)
  if #letters[i] > (noted and 2 or 1) or read == noted and letters[i] ~= '' then
    codes[i] = '!'
  elseif letters[i] == '' then
    codes[i] = read and 'x' or 'w'
  else
    codes[i] = (live == 'a' or live == 'l') and live or 'o'
  end
end
return {ended and '' or after, table.concat(refs, ' '), table.concat(codes)}
