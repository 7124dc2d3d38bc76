--- watchers: what tells the readers of a watched queue which messages to look at again, until the sweep ends it.
--- @include timetable
local function notify_watchers(queue, refs)
  if not queue.watched or #refs == 0 then return end
  call('XADD', K.events(queue.name), 'MAXLEN', '~', V.events, '*', F.refs, table.concat(refs, ' '))
  wake_followers()
end
