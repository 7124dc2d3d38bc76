--- name_messages: the bookmarks of messages that are recorded here; large ones end it early.
--- ARGV refs...
--- GIVES the bookmarks of the first ones, one at least
--- FLAGS no-writes, allow-oom
--- @include fail, bookmark
local names, bytes = {}, 0
for i = refs_from, #ARGV do
  local name, read = bookmark_of(ARGV[i])
  names[#names + 1], bytes = name, bytes + read
  if bytes >= V.bytes then break end
end
return names
