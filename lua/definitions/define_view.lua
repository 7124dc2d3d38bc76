--- define_view: add a view or change it.
--- ARGV version, view_name, definition
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
check_catalog(version)
call('HSET', K.views(), view_name, definition)
change_catalog()
return 1
