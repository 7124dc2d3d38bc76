--- paused_queue: a queue that is being rebuilt: it reads a topic that no name can be, so that no call has to ask.
--- @include queue, fail

local function compiled_numbers(compiled)
  return string.match(compiled, '^' .. string.rep('%d+ ', 9) .. '%d+')
end

-- With another topic, '' for a queue that may have several; what follows the topic stays.
local function with_topic(compiled, topic)
  return compiled_numbers(compiled) .. (topic ~= '' and ' ' .. topic or '') .. (string.match(compiled, ':%w+$') or '')
end

local function paused_form(compiled)
  return with_topic(compiled, V.nowhere)
end

-- Who rebuilds the queue and until when he is waited for, ms; nil: nobody.
local function rebuilder_of(name)
  return string.match(call('HGET', K.queue(name), F.rebuild) or '', '^(%S+) (%d+)$')
end

local function check_rebuilder(name, owner)
  if rebuilder_of(name) ~= owner then fail(E.REBUILDING, {queue = name}) end
end

local function keep_rebuilding(name, owner, deadline)
  call('HSET', K.queue(name), F.rebuild, owner .. ' ' .. string.format('%.0f', deadline))
  call('ZADD', K.rebuilding(), deadline, name)
end
