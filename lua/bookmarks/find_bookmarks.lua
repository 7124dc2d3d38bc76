--- find_bookmarks: where messages are here that bookmarks name.
--- ARGV bookmarks...
--- GIVES of each its ID here; `+` where it may still come, `-` where it is not here and nothing brings it
--- FLAGS no-writes, allow-oom
--- @include fail, foreign_bookmarks
-- Of a bookmark of this instance the ID is what it says, whether the log still has that or not.
local own, found = call('HGET', K.instance(), F.origin), {}
for i = bookmarks_from, #ARGV do
  local here, topic, origin, id = find_bookmark(ARGV[i], own)
  found[#found + 1] = here or is_to_come(topic, origin, id, own) and '+' or '-'
end
return found
