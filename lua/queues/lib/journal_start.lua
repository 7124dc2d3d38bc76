--- journal_start: where a journal begins: above the IDs of this instance's last incarnation, which the server's clock may be behind.

-- The last ID of the incarnations that were here; false where there was none.
local function last_former_id()
  local last = false
  for id in string.gmatch(call('HGET', K.instance(), F.former) or '', '(%S+) %S+') do
    -- Of those that only others know nothing is here.
    if id ~= V.first_id then last = id end
  end
  return last
end

-- Make a journal that is not there yet, so that each of its IDs is above those of the last incarnation.
local function begin_journal(queue_name)
  local journal = K.journal(queue_name)
  local last = call('EXISTS', journal) == 0 and last_former_id()
  if not last then return end
  call('XADD', journal, 'MAXLEN', 0, last, F.how, '')
end
