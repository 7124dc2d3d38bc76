--- begin_session: begin a durable subscription's session, which ends every other one of its name.
--- ARGV now, subscription, client, former
--- FAIL NAME_IN_USE
--- GIVES the session's number
--- FLAGS allow-oom
--- @include clock, fail, session_numbers
-- former: of a subscription whose session the server lost, that one's number, so that a later one of another client stays; ''
-- of one that begins.
local held, by = string.match(call('HGET', K.bookmarks(subscription), F.session) or '', '^(%d+) (.*)$')
if held and former ~= '' and by ~= client and tonumber(held) > tonumber(former) then
  fail(E.NAME_IN_USE, {subscription = subscription, by = by})
end
local session = next_session(clock_ms(now))
call('HSET', K.bookmarks(subscription), F.session, session .. ' ' .. client)
return session
