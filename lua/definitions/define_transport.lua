--- define_transport: add a transport or change it.
--- ARGV version, transport, definition, limits
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- limits: memory, disk, percent of one client, age in ms; `-` for what is not given. Readers report to those of the moment.
check_catalog(version)
call('HSET', K.transports(), transport, definition)
call('HSET', K.limits(), transport, limits)
change_catalog()
return 1
