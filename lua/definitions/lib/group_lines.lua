--- group_lines: what a queue keeps of groups that are bound to subscriptions.

local function unlink_lines(name)
  for _, id in ipairs(call('ZRANGE', K.lines(name), 0, -1)) do call('UNLINK', K.going_of(name, id), K.going_of(name, id .. '+')) end
  call('UNLINK', K.lines(name), K.bound(name))
end
