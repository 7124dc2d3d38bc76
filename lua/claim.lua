--- claim: begin a durable subscription's session, which ends every other one of its name.
--- ARGV subscription, client
--- GIVES the session's number
--- FLAGS allow-oom
--- @include fail
local session = string.format('%.0f', call('HINCRBY', K.instance(), F.logons, 1))
call('HSET', K.bookmarks(subscription), F.session, session .. ' ' .. client)
return session
