--- define_instance: say which group the instance belongs to.
--- ARGV version, group
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- group: '' for the default, its name.
check_catalog(version)
if group == '' then call('HDEL', K.instance(), F.group) else call('HSET', K.instance(), F.group, group) end
change_catalog()
return 1
