--- note_flushing: note how the server flushes its append-only file, for those who may not ask it.
--- ARGV run, appendfsync, on_rewrite
--- GIVES 1, or 0 where that was noted
--- FLAGS allow-oom
--- @include fail
local noted = run .. ' ' .. appendfsync .. ' ' .. on_rewrite
if call('GET', K.lasting()) == noted then return 0 end
call('SET', K.lasting(), noted)
return 1
