--- hold_log: say from which message on a replay, a destination or an action still needs a topic's log, or that it does not.
--- ARGV now, topic, holder, id, period
--- GIVES 1
--- FLAGS allow-oom
--- @include clock, fail
-- holder: `<kind> <name>`. id: the least that it needs; '' ends the hold. period: ms until the hold ends by itself, so that
-- one whose holder died pins nothing for ever; 0: it stays until it is ended.
if id == '' then
  call('HDEL', K.holds(topic), holder)
else
  local ends = tonumber(period) > 0 and string.format('%.0f', clock_ms(now) + period) or '0'
  call('HSET', K.holds(topic), holder, id .. ' ' .. ends)
end
return 1
