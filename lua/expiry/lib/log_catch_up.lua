--- log_catch_up: a queue that several instances have reads on without anybody to deliver to, so that what it knows stays small.
--- @include expire_unread, unread_messages

-- One bounded step: what is owned here becomes ready, the rest remote. True when nothing is unread.
local function catch_up_with_logs(queue, now)
  if queue.topic == V.nowhere then return false end
  local pass, topics, done = open_expire_pass(queue, now), unread_topics(queue), true
  pass.till = math.huge
  for i = 1, #topics, 2 do
    local is_read = pass_unread_topic(pass, topics[i])
    -- Those behind the first hundred have their turn.
    if is_read and queue.topic == '' then call('ZREM', K.behind(queue.name), topics[i]) end
    done = done and is_read
  end
  if queue.topic == '' and call('EXISTS', K.behind(queue.name)) == 1 then done = false end
  close_expire_pass(pass)
  return done
end
