--- action_events: what came to pass with clients and subscriptions, told while an action asks for it.
--- @include timetable

local function has_listeners()
  return call('HEXISTS', K.instance(), F.heard) == 1
end

local function emit_event(...)
  call('XADD', K.happenings(), 'MAXLEN', '~', V.happenings, '*', F.what, ...)
  wake_followers()
end

-- pattern: false without one. tree: of its filter, or nil.
local function emit_subscription_event(what, client, queues, pattern, asked, tree)
  emit_event(what, F.client, string.match(client, '^(.*)/') or client, F.queues, queues,
    F.topic, pattern or queues, F.options, 'max_backlog=' .. asked, F.tree, tree or '')
end
