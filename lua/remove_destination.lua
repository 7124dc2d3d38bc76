--- remove_destination: forget a destination, what it was sent, and what it holds.
--- ARGV destination
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
if call('HDEL', K.destinations(), destination) == 0 then return 0 end
call('HDEL', K.links(), 'out ' .. destination)
call('UNLINK', K.sent(destination))
-- Nobody waits for it any more.
if call('HDEL', K.sync(), destination) == 1 then call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'changed') end
for _, topic in ipairs(call('HKEYS', K.topics())) do call('HDEL', K.holds(topic), 'destination ' .. destination) end
change_catalog()
return 1
