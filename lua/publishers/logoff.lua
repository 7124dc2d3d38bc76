--- logoff: end a publisher's session, unless a later one took its name.
--- ARGV publisher, session
--- GIVES 1, or 0 when it was ended before
--- FLAGS allow-oom
--- @include fail
if string.match(call('HGET', K.sessions(), publisher) or '', '^%d+') ~= session then return 0 end
return call('HDEL', K.sessions(), publisher)
