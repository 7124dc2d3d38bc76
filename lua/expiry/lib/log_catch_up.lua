--- log_catch_up: a queue that several instances have reads on without anybody to deliver to, so that what it knows stays small.
--- @include expire_unread, unread_messages

-- One bounded step: what is owned here becomes ready, the rest remote. True when nothing is unread.
local function catch_up_with_logs(queue, now)
  if queue.topic == V.nowhere then return false end
  local pass, topics, done = open_expire_pass(queue, now), unread_topics(queue), true
  pass.till = math.huge
  for i = 1, #topics, 2 do done = pass_unread_topic(pass, topics[i]) and done end
  close_expire_pass(pass)
  return done
end
