--- catalog: everything that is defined, as one consistent picture, with its version.
--- GIVES {version, topics, queues, actions, patterns, views, settings, transports}, all but the first flat lists of names and values
--- FLAGS no-writes, allow-oom
--- @include fail
return {
  call('HGET', K.instance(), F.catalog),
  call('HGETALL', K.topics()), call('HGETALL', K.queues()), call('HGETALL', K.actions()), call('HGETALL', K.patterns()),
  call('HGETALL', K.views()), call('HGETALL', K.settings()), call('HGETALL', K.transports()),
}
