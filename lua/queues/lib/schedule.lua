--- schedule: messages that are not to be delivered before their time.
--- @include message_life, queue, batch, timetable

-- items: ref, ms when due and ms when its life is over, or false, in turn. They were read, or are noted in `ahead`.
local function schedule_messages(queue, items)
  local due, lives = {}, {}
  for i = 1, #items, 3 do
    due[#due + 1], due[#due + 2] = items[i + 1], 'scheduled ' .. queue.name .. ' ' .. items[i]
    -- By order of arrival it may be looked at too early; the life that it has from its own is in the topic's index.
    if items[i + 2] and queue.life > 0 then lives[#lives + 1], lives[#lives + 2] = items[i + 2], items[i] end
  end
  if not due[1] then return end
  add_all_due(due)
  call_in_batches('ZADD', K.lives(queue.name), lives)
  for i = 1, #lives, 2 do add_due(lives[i], 'expiry ' .. queue.name, 'LT') end
  call('HINCRBY', K.queue(queue.name), F.scheduled, #due / 2)
end
