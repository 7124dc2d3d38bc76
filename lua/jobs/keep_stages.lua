--- keep_stages: see that rows that attempts have put aside are all there, and keep them for a while more.
--- ARGV job, ttl, lanes...
--- FAIL STAGE_LOST
--- GIVES how many lists there are
--- @include fail
-- lanes: of each its name, the attempt and how long its list is; ttl: ms.
local keys = {}
for i = lanes_from, #ARGV, 3 do
  local key = K.stage(job, ARGV[i], ARGV[i + 1])
  local length, there = tonumber(ARGV[i + 2]), call('LLEN', key)
  if there ~= length then fail(E.STAGE_LOST, {job = job, lane = ARGV[i], expected = length, got = there}) end
  keys[#keys + 1] = key
end
for _, key in ipairs(keys) do call('PEXPIRE', key, ttl) end
return #keys
