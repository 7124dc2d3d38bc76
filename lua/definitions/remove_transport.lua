--- remove_transport: forget a transport and its limits; those who name it have the limits of the instance.
--- ARGV version, transport
--- FAIL CATALOG_CHANGED
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
check_catalog(version)
if call('HDEL', K.transports(), transport) == 0 then return 0 end
call('HDEL', K.limits(), transport)
change_catalog()
return 1
