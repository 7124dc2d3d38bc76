--- define_setting: add an address setting or change it.
--- ARGV version, match, definition
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- The queues that it matches are compiled anew by calls of their own: until that is done its definition stands behind `>`.
check_catalog(version)
call('HSET', K.settings(), match, definition)
change_catalog()
return 1
