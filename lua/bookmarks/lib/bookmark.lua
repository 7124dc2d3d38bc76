--- bookmark: how a message that is recorded here is named on every instance.
--- @include ref, source, incarnations

-- Returns also the bytes that were read. One that is not in its log any more is named as if it was published here.
local function bookmark_of(ref)
  local topic, id = parse_ref(ref)
  local bookmark, bytes = topic .. '~' .. origin_at(id) .. '~' .. id, 0
  if call('EXISTS', K.origins(topic)) == 0 then return bookmark, 0 end
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  for _, text in ipairs(entry and entry[2] or {}) do bytes = bytes + #text end
  local source = entry and source_of(entry[2])
  return source and topic .. '~' .. source or bookmark, bytes
end
