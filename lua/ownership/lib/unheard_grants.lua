--- unheard_grants: what was granted to an instance that did not know of it yet when it asked, so that its room is not filled twice.
--- @include ref, incarnations
-- Kept in `granted`, by its name: its origin and the own one, up to where it has heard this journal, then of each grant behind
-- that the ID in the journal and how many messages.

-- Nothing that somebody lacks is trimmed from the journal: up to there everybody has heard it.
local function journal_begin(queue)
  local first = call('XRANGE', K.journal(queue.name), '-', '+', 'COUNT', 1)[1]
  return first and order_of(first[1]) or '~'
end

local function grants_field(by) return string.match(by, '^(.*)%.') or by end

-- heard: `<origin>~<ID>`, parted by spaces. Returns how many it did not know of, and what is to be kept; nil where it asked
-- before it had heard what it had when it asked later: what was granted between is not kept any more.
local function unheard_grants(queue, by, own, heard)
  local reached = '0-0'
  for origin, id in string.gmatch(heard, '([^~ ]+)~(%S+)') do
    -- What a former incarnation journaled is in the same journal, below what this one does; its IDs may be taken for that one's.
    local is_ours = origin == own or is_former_incarnation(origin) and id ~= V.last_id
    if is_ours and order_of(id) > order_of(reached) then reached = id end
  end
  local known = call('HGET', K.granted(queue.name), grants_field(by)) or ''
  local who, last, grants = string.match(known, '^(%S+ %S+) (%S+)(.*)$')
  local count, kept = 0, by .. ' ' .. own .. ' ' .. reached
  if who ~= by .. ' ' .. own then return 0, kept end
  local trimmed = journal_begin(queue)
  if order_of(reached) < order_of(last) and order_of(last) >= trimmed then return nil end
  for id, number in string.gmatch(grants, ' (%S+) (%d+)') do
    local order = order_of(id)
    if order > order_of(reached) and order >= trimmed then count, kept = count + number, kept .. ' ' .. id .. ' ' .. number end
  end
  return count, kept
end
