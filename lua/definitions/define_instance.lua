--- define_instance: say which group the instance belongs to, what people call it, how large a body its topics let expressions read, and whether a first publish makes one.
--- ARGV version, group, label, limit, defined_only
--- FAIL CATALOG_CHANGED
--- GIVES 1
--- @include fail, catalog
-- group: '' for the default, its name. label: '' for none. limit: bytes, '' for the default. defined_only: 1, or ''.
-- A topic is made by the version of the catalog that its maker has read: none is made by what was said before this.
check_catalog(version)
local elements = {[F.group] = group, [F.label] = label, [F.expression_limit] = limit, [F.defined_only] = defined_only}
for field, value in pairs(elements) do
  if value == '' then call('HDEL', K.instance(), field) else call('HSET', K.instance(), field, value) end
end
change_catalog()
return 1
