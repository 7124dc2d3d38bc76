--- publisher_failover: a publisher that comes from another instance: its first message here names its last one there.
-- So its order holds everywhere: `apply_log` waits for that one. Included as `publisher_failover()`.
--- @include source

-- place: ID and topic of its last message, as its publisher has it; nil where nothing is known.
local function note_predecessor(publisher, place)
  local id, topic = string.match(place or '', '^(%d+%-%d+) (.+)$')
  local entry = id and call('XRANGE', K.log(topic), id, id)[1]
  local source = entry and source_of(entry[2])
  if source then
    call('HSET', K.sequences(), publisher .. ' after', topic .. ' ' .. source)
  else
    call('HDEL', K.sequences(), publisher .. ' after')
  end
end
