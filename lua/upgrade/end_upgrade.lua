--- end_upgrade: the instance has this format from now on, if every part of the step is done.
--- ARGV step, cursor
--- GIVES {format, cursor}
--- FLAGS allow-oom
--- @include upgrade_cursor
-- cursor: behind the last part.
if is_at_cursor(step, cursor) then
  call('HSET', K.instance(), F.format, V.format)
  call('HDEL', K.instance(), F.upgrade)
end
return upgrade_state()
