--- catching_up: a queue that several instances have reads on without anybody to deliver to, so that what it knows stays small.
--- @include reading, unread

-- One bounded step: what is owned here becomes ready, the rest remote. True when nothing is unread.
local function read_on(queue, now)
  if queue.topic == V.nowhere then return false end
  local pass, topics, done = open_pass(queue, now), unread_topics(queue), true
  pass.till = math.huge
  for i = 1, #topics, 2 do done = read_over(pass, topics[i]) and done end
  close_pass(pass)
  return done
end
