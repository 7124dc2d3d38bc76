--- fix_fields: bodies of `name=value` with one separator, the message types nvfix and fix, as documents.
--- @include marked_text

-- A name that is given again makes an array.
local function add_field(root, name, value)
  local known = root[name]
  if known == nil then
    root[name] = value
  elseif type(known) == 'table' then
    known[#known + 1] = value
  else
    root[name] = {known, value}
  end
end

-- false where the body is not such fields, or more than `most` of them; and how many were read. tags: names are digits.
-- Single signs are found by the text alone: a pattern that fails at the end of a long field goes all the way back.
local function read_fields(body, separator, tags, most, exact)
  local root, at, count = {}, 1, 0
  while at <= #body do
    if count == most then return false, most + 1 end
    local equals = string.find(body, '=', at, true)
    local ending = string.find(body, separator, at, true) or #body + 1
    if not equals or equals == at or equals > ending then return false, count end
    local name, value = string.sub(body, at, equals - 1), string.sub(body, equals + 1, ending - 1)
    if tags and string.match(name, '^%d*()') <= #name then return false, count end
    if exact then name, value = marked_text(name), marked_text(value) end
    add_field(root, name, value)
    at, count = ending + 1, count + 1
  end
  return count > 0 and root, count
end
