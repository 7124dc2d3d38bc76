--- journal_batch: what a link sends of a journal, in ARGV.
-- A row: source, path, how, reason, by, attempts, returns, owner, epochs, number of bookmarks, the bookmarks. What an entry
-- does not have is ''. Behind the reason and a space stands what a consumer said. Behind the number ` late`: who passes it on was told
-- before the message came, and journaled it then, behind what its origin journaled later. So `received` may be past it though it was
-- never told here.

local function read_journal_batch(at)
  local rows = {}
  while at <= #ARGV do
    local number, late = string.match(ARGV[at + 9], '^(%d+)( ?%a*)$')
    number = tonumber(number)
    local row = {
      source = ARGV[at], path = ARGV[at + 1], how = ARGV[at + 2], owner = ARGV[at + 7], epochs = {}, late = late ~= '' or nil,
      bookmarks = {unpack(ARGV, at + 10, at + 9 + number)},
    }
    row.reason, row[F.consumer_reason] = string.match(ARGV[at + 3], '^(%S*) ?(.*)$')
    row[F.by], row[F.attempts], row[F.returns] = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
    for epoch in string.gmatch(ARGV[at + 8], '%d+') do row.epochs[#row.epochs + 1] = epoch end
    rows[#rows + 1] = row
    at = at + 10 + number
  end
  return rows
end
