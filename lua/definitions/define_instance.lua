--- define_instance: say which group the instance belongs to, what people call it, and how large a body its topics let expressions read.
--- ARGV version, group, label, limit
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- group: '' for the default, its name. label: '' for none. limit: bytes, '' for the default.
check_catalog(version)
for field, value in pairs({[F.group] = group, [F.label] = label, [F.expression_limit] = limit}) do
  if value == '' then call('HDEL', K.instance(), field) else call('HSET', K.instance(), field, value) end
end
change_catalog()
return 1
