--- finish_job: let go of what was noted of a committed epoch's lanes, which are recorded; without any left it is done.
--- ARGV now, job, epoch, lanes...
--- GIVES how many lanes are left
--- @include clock, fail
-- Of its own lanes an instance knows better whether they are recorded.
local last = string.match(call('HGET', K.jobs(), job) or '', '^(%d+) open')
if last ~= epoch then return 0 end
local own = string.sub(P, 2, -2) .. '/'
for i = lanes_from, #ARGV do
  local rows, recorded = string.match(call('HGET', K.manifest(job), ARGV[i]) or '', '^%S+ (%d+) (%d+)$')
  if rows and (rows == recorded or string.sub(ARGV[i], 1, #own) ~= own) then call('HDEL', K.manifest(job), ARGV[i]) end
end
local left = call('HLEN', K.manifest(job))
if left == 0 then call('HSET', K.jobs(), job, epoch .. ' done ' .. string.format('%.0f', clock_ms(now))) end
return left
