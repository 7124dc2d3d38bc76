--- raise_counter: raise a counter by one, once for each sequence of a place; the last one asked again gets the same value.
--- ARGV action, place, sequence, counter
--- GIVES the counter's value
--- @include fail
local field = F.counted .. ' ' .. place
local last, value = string.match(call('HGET', K.action(action), field) or '0 0', '^(%d+) (%S+)$')
if last == sequence then return value end
-- Whoever asks for an earlier one comes late: what it does with the answer was done before.
if tonumber(last) > tonumber(sequence) then return call('HGET', K.counters(), counter) or '0' end
value = string.format('%.0f', call('HINCRBY', K.counters(), counter, 1))
call('HSET', K.action(action), field, sequence .. ' ' .. value)
return value
