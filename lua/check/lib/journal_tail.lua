--- journal_tail: what a queue journaled since somebody read its journal; so that live state and journal are of one moment.
--- @include ref

-- How much one entry settles of its messages: what was given back at most once is not settled any more, and a message whose
-- owner changed is as it was.
local function settled_weight(how)
  if how == V.transferred then return 0 end
  return how == V.given_back and -1 or 1
end

-- ref -> by how much it is settled since, and the journal's last ID; nil when there is too much to read at once.
local function read_journal_tail(name, after)
  local entries = call('XRANGE', K.journal(name), '(' .. after, '+', 'COUNT', 65)
  local settled, number, last = {}, 0, after
  for _, entry in ipairs(entries) do
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    for ref in string.gmatch(fields[F.refs] or '', '%S+') do
      settled[ref] = (settled[ref] or 0) + settled_weight(fields[F.how])
      number = number + 1
    end
    last = entry[1]
    if number > 4000 then return nil end
  end
  if #entries > 64 then return nil end
  return settled, last
end
