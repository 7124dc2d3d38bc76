--- yielding: a message that another origin owns, by the rule for those that were published twice.
--- @include transfer

-- In every queue where the origin owns. A transfer that was decided before counts more.
local function yield_everywhere(topic, routed, id, origin)
  for name in string.gmatch(routed, '[^%s*]+') do
    local queue, ref = load_queue(name), ref_of(topic, id)
    if queue and queue.owner == V.everywhere and call('HSETNX', K.owners(name), ref, origin .. ' 0') == 1 then
      local where = where_is(queue, ref)
      if where == 'settled' then call('HDEL', K.owners(name), ref) end
      if where and where ~= V.remote then move_out(queue, {ref}, {[ref] = where}) end
    end
  end
end
