--- drop_stages: let go of rows that attempts have put aside, unless they were committed.
--- ARGV job, lanes...
--- GIVES how many attempts were let go
--- FLAGS allow-oom
--- @include fail
-- lanes: of each its name and the attempt.
local dropped = 0
for i = lanes_from, #ARGV, 2 do
  local attempt = string.match(call('HGET', K.manifest(job), ARGV[i]) or '', '^%S+')
  if attempt ~= ARGV[i + 1] then dropped = dropped + call('UNLINK', K.stage(job, ARGV[i], ARGV[i + 1])) end
end
return dropped
