--- source: of a copy, where its message was published; the last two fields of its entry say that and the way it came.

-- `<origin>~<id>` of a copy; nil of what was published here. Somebody else's entry may end with fields of these names, too.
local function source_of(fields)
  local number = #fields
  if fields[number - 1] ~= F.path or fields[number - 3] ~= F.source then return nil end
  return string.match(fields[number - 2], '^[^~]+~%d+%-%d+$')
end

-- How many of its fields are the message's own.
local function own_fields(fields)
  return source_of(fields) and #fields - 4 or #fields
end
