--- define_conflated: add a conflated topic or change it.
--- ARGV version, conflated_topic, definition
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
check_catalog(version)
call('HSET', K.conflated(), conflated_topic, definition)
change_catalog()
return 1
