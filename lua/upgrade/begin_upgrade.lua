--- begin_upgrade: begin to turn an instance of the format before into this one, unless that was begun.
--- ARGV found, step
--- GIVES {format, cursor}
--- FLAGS allow-oom
--- @include upgrade_cursor
-- found: the format that the step begins with. From here until the step ends all other scripts refuse, those of both formats.
if upgrade_state()[1] == found then call('HSET', K.instance(), F.format, step, F.upgrade, '1 ') end
return upgrade_state()
