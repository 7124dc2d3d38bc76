--- save_bookmarks: write down how far a durable subscription has come, unless another one of its name began since.
--- ARGV subscription, session, number, names...
--- FAIL NAME_IN_USE, UNKNOWN_SESSION
--- GIVES 1
--- FLAGS allow-oom
--- @include batch, fail
-- names: `number` of them with their values, in turn; then those that are removed.
local held, by = string.match(call('HGET', K.bookmarks(subscription), F.session) or '', '^(%d+) (.*)$')
-- A server that lost the beginning has none, or an older one's.
if tonumber(held or 0) < tonumber(session) then fail(E.UNKNOWN_SESSION, {subscription = subscription}) end
if held ~= session then fail(E.NAME_IN_USE, {subscription = subscription, by = by}) end
local kept, reached = {}, {}
local last = names_from + 2 * tonumber(number) - 1
for i = names_from, last do kept[#kept + 1] = ARGV[i] end
for i = last + 1, #ARGV do reached[#reached + 1] = ARGV[i] end
call_in_batches('HSET', K.bookmarks(subscription), kept)
call_in_batches('HDEL', K.bookmarks(subscription), reached)
return 1
