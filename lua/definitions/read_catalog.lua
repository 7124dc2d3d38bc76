--- read_catalog: everything that is defined, as one consistent picture, with its version.
--- ARGV known
--- GIVES {version, topics, queues, actions, patterns, views, settings, transports, destinations, conflated, name, group, label, limit, defined_only}, in the middle flat lists of names and values; {version} alone where that is the known one
--- FLAGS no-writes, allow-oom
--- @include fail
-- known: the version of a catalog that the caller has, or ''. With 1,000 queues the reply has 80 kB, and with a known version 20 bytes.
local version, name, group, label, limit, defined_only =
  unpack(call('HMGET', K.instance(), F.catalog, F.name, F.group, F.label, F.expression_limit, F.defined_only))
if version == known then return {version} end
return {
  version,
  call('HGETALL', K.topics()), call('HGETALL', K.queues()), call('HGETALL', K.actions()), call('HGETALL', K.patterns()),
  call('HGETALL', K.views()), call('HGETALL', K.settings()), call('HGETALL', K.transports()),
  call('HGETALL', K.destinations()), call('HGETALL', K.conflated()), name, group or name, label or '',
  limit or V.expression_limit, defined_only or '',
}
