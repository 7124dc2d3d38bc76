--- remove_destination: forget a destination and what it was sent, so that nothing is kept for it.
--- ARGV destination
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
if call('HDEL', K.destinations(), destination) == 0 then return 0 end
call('HDEL', K.links(), 'out ' .. destination)
call('UNLINK', K.sent(destination))
call('HDEL', K.keepers(), 'link ' .. destination)
-- Nobody waits for it any more.
if call('HDEL', K.sync(), destination) == 1 then call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'changed') end
change_catalog()
return 1
