--- happenings: what came to pass with clients and subscriptions, told while an action asks for it.

local function is_heard()
  return call('HEXISTS', K.instance(), F.heard) == 1
end

local function tell_happening(...)
  call('XADD', K.happenings(), 'MAXLEN', '~', V.happenings, '*', F.what, ...)
end

-- pattern: false without one. tree: of its filter, or nil.
local function tell_subscription(what, client, queues, pattern, asked, tree)
  tell_happening(what, F.client, string.match(client, '^(.*)/') or client, F.queues, queues,
    F.topic, pattern or queues, F.options, 'max_backlog=' .. asked, F.tree, tree or '')
end
