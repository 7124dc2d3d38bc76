--- downgrade: wait for a sync destination no more, or again: persisted acknowledgements that it holds back are let go.
--- ARGV now, destination, enabled
--- FAIL UNKNOWN_DESTINATION
--- GIVES 1 if that changed something, else 0
--- FLAGS allow-oom
--- @include clock, fail, action_events
-- enabled: 1 to downgrade, 0 to upgrade. One that is configured as async is refused: it never is waited for.
local former = call('HGET', K.sync(), destination)
if not former then fail(E.UNKNOWN_DESTINATION, {destination = destination}) end
local is_down = former ~= ''
if is_down == (enabled == '1') then return 0 end
call('HSET', K.sync(), destination, is_down and '' or string.format('%.0f', clock_ms(now)))
call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'changed')
if has_listeners() then
  emit_event(is_down and 'upgrade_replication' or 'downgrade_replication', F.client, '', F.topic, destination,
    F.data, call('HGET', K.links(), 'out ' .. destination) or '{}')
end
return 1
