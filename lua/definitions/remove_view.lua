--- remove_view: forget a view and its rows; what was published of them stays in the topic of its name.
--- ARGV version, view_name
--- FAIL CATALOG_CHANGED
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
check_catalog(version)
if call('HDEL', K.views(), view_name) == 0 then return 0 end
call('UNLINK', K.view(view_name))
call('HDEL', K.keepers(), view_name)
change_catalog()
return 1
