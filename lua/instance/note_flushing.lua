--- note_flushing: note how the server flushes its append-only file, for those who may not ask it.
--- ARGV run, appendfsync, on_rewrite, held_until
--- GIVES 1, or 0 where that was noted
--- FLAGS allow-oom
--- @include fail
local noted = call('GET', K.lasting()) or ''
-- What a coordinator saw that was killed meanwhile holds for as long as the server runs.
local former, held = string.match(noted, '^(%S+) .* (%d+)$')
if former == run and tonumber(held) > tonumber(held_until) then held_until = held end
local now = run .. ' ' .. appendfsync .. ' ' .. on_rewrite .. ' ' .. held_until
if noted == now then return 0 end
call('SET', K.lasting(), now)
return 1
