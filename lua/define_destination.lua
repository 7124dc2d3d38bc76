--- define_destination: add a destination or change it.
--- ARGV version, destination, definition
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
check_catalog(version)
call('HSET', K.destinations(), destination, definition)
change_catalog()
return 1
