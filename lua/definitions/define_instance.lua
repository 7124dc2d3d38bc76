--- define_instance: say which group the instance belongs to, and what people call it.
--- ARGV version, group, label
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- group: '' for the default, its name. label: '' for none.
check_catalog(version)
if group == '' then call('HDEL', K.instance(), F.group) else call('HSET', K.instance(), F.group, group) end
if label == '' then call('HDEL', K.instance(), F.label) else call('HSET', K.instance(), F.label, label) end
change_catalog()
return 1
