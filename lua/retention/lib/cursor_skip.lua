--- cursor_skip: a queue that nobody reads goes past what stands at its unread end and is none of its business any more.
--- @include ref, message_life

-- What is settled or scheduled ahead of the cursor, or for another queue; at most `most` of it; returns how many. queue: its
-- name, and its compiled definition as `known`; one that is being rebuilt does not know what it has settled.
local function pass_settled(queue, topic, most)
  if not queue.known or string.sub(queue.known, -#V.nowhere) == V.nowhere then return 0 end
  local id, count = string.match(call('HGET', K.cursors(queue.name), topic) or '', '^(%S+) (%d+)$')
  local before, step, looked, make_ref = id, 1, 0, ref_maker(topic)
  while id and looked < most do
    local entries = call('XRANGE', K.log(topic), '(' .. id, '+', 'COUNT', step)
    local ended = #entries < step
    for _, entry in ipairs(entries) do
      local _, _, addressed = delivery_options_of(entry[2])
      local elsewhere = addressed and addressed ~= queue.name
      if call('HDEL', K.ahead(queue.name), make_ref(entry[1])) == 0 and not elsewhere then
        ended = true
        break
      end
      id, count, looked = entry[1], count + 1, looked + 1
    end
    if ended then break end
    step = math.min(step * 4, 64)
  end
  if id ~= before then call('HSET', K.cursors(queue.name), topic, id .. ' ' .. string.format('%d', count)) end
  return looked
end
