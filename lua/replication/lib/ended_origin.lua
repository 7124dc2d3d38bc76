--- ended_origin: an incarnation that is over has no more messages than are known: its `received` is the greatest ID there is.
--- @include entry_ids

-- In the order of the log, behind all that is here of it. Links carry it as a bookmark without a message.
local function pass_on_end(topic, origin, path, now)
  call('XADD', K.same(topic), next_id(now), F.here, V.first_id, F.source, origin .. '~' .. V.last_id, F.path, path)
end
