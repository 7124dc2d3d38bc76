--- define_destination: add a destination or change it.
--- ARGV version, destination, definition, is_sync
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- is_sync: 1 if its acknowledgement is waited for, else 0. One that is downgraded stays so.
check_catalog(version)
call('HSET', K.destinations(), destination, definition)
if is_sync == '1' then
  call('HSETNX', K.sync(), destination, '')
elseif call('HDEL', K.sync(), destination) == 1 then
  call('XADD', K.confirmed(), 'MAXLEN', '~', V.marks, '*', F.what, 'changed')
end
change_catalog()
return 1
