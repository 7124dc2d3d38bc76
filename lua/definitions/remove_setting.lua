--- remove_setting: forget an address setting that says nothing any more.
--- ARGV version, match
--- FAIL CATALOG_CHANGED
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
-- Its queues were compiled without it before, by defining it as one that says nothing.
check_catalog(version)
if call('HDEL', K.settings(), match) == 0 then return 0 end
change_catalog()
return 1
