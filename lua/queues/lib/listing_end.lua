--- listing_end: nothing more is listed of a queue with groups: what is unread and in no list would wait for ever, so that all that is gets its place by the log.
--- @include queue

local function stop_listing(queue)
  local listed, number = string.gsub(queue.listed or '', ' 0 (%S+)$', ' 1 %1')
  if number == 0 then return end
  queue.listed = listed
  call('HSET', K.queue(queue.name), F.listed, listed)
end
