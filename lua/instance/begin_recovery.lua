--- begin_recovery: hold the shared queues of this instance, if another one knows of incarnations of it that it does not know itself.
--- ARGV now, origins...
--- GIVES the word under which it recovers, '' where it does not
--- FLAGS allow-oom
--- @include clock, fail, recovery
-- An instance that was emptied cannot know it: who has something of it tells it, before anything of that comes back. None
-- of their entries is here under its own ID. Call it late or twice: what is known changes nothing.
local ms = clock_ms(now)
local former = call('HGET', K.instance(), F.former)
local lost = {former or nil}
for i = origins_from, #ARGV do
  if is_former_incarnation(ARGV[i]) and not is_known_incarnation(ARGV[i]) then lost[#lost + 1] = V.first_id .. ' ' .. ARGV[i] end
end
if #lost > (former and 1 or 0) then
  call('HSET', K.instance(), F.former, table.concat(lost, ' '))
  hold_shared_queues(ms, false)
end
return call('HGET', K.instance(), F.recovering) or ''
