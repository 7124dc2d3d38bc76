--- listing_form: what others did to messages that a queue with groups has listed (listing.lua), which its dispatch has to know.
--- @include queue

-- form: `V.listing_ends`: nothing more is listed, since what is unread and in no list would wait for ever, so that all that is gets its place by the
-- log; `V.listing_broken`: some of what is unread is settled or scheduled, so that each one is looked for when its turn comes.
local function set_listing_form(queue, form)
  if queue.listing then queue.listing.form = form end
  local listed, number = string.gsub(queue.listed or '', ' [^' .. V.listing_ends .. '] (%S+)$', ' ' .. form .. ' %1')
  if number == 0 or listed == queue.listed then return end
  queue.listed = listed
  call('HSET', K.queue(queue.name), F.listed, listed)
end
