--- remove_conflated: forget a conflated topic; who subscribed to it goes on as before.
--- ARGV version, conflated_topic
--- FAIL CATALOG_CHANGED
--- GIVES 1, or 0 when there was none
--- FLAGS allow-oom
--- @include fail, catalog
check_catalog(version)
if call('HDEL', K.conflated(), conflated_topic) == 0 then return 0 end
change_catalog()
return 1
