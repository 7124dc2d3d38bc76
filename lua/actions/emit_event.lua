--- emit_event: tell the actions that ask for it that a client came or went, or that an event was raised.
--- ARGV now, what, client, topic, data
--- GIVES 1 if it is told; 0 if nobody asks, or it was told before
--- FLAGS allow-oom
--- @include clock, fail, action_events, timetable
-- what: `connect`, `disconnect`, `event`, whose name is `topic`, or what became of the link to the destination `topic`. Each coming and going of a client is told once.
local ms = clock_ms(now)
if not has_listeners() then return 0 end
if what == 'connect' and call('HSETNX', K.clients(), client, ms) == 0 then return 0 end
if what == 'disconnect' and call('HDEL', K.clients(), client) == 0 then return 0 end
if what == 'connect' then wake_coordinator('clients') end
emit_event(what, F.client, client, F.topic, topic, F.data, data)
return 1
