--- body_formats: bodies of other message types than JSON as documents, as numbers_as_text has them if so asked.
--- @include messagepack, fix_fields

-- The document of a body, false where it is not of its type or has more than `most` values; and how many were read.
-- format: the type's name, then the code of what separates its fields.
local function read_body(format, body, most, exact)
  local name, separator = string.match(format, '^(%l+)(%d*)$')
  if name == 'msgpack' then return read_packed(body, most, exact) end
  if name == 'binary' then return false, 0 end
  return read_fields(body, string.char(tonumber(separator)), name == 'fix', most, exact)
end
