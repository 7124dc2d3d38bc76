--- keep_duty: be the one that keeps a view up to date, for a while; again before the while is over.
--- ARGV now, view_name, owner, period
--- GIVES 1, or 0 while somebody else holds it
--- FLAGS allow-oom
--- @include clock, fail
local ms = clock_ms(now)
local holder, deadline = string.match(call('HGET', K.keepers(), view_name) or '- 0', '^(%S+) (%d+)$')
if holder ~= owner and tonumber(deadline) > ms and tonumber(deadline) <= ms + 3600000 then return 0 end
call('HSET', K.keepers(), view_name, owner .. ' ' .. string.format('%.0f', ms + period))
return 1
