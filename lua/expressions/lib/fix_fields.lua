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

-- false where the body is not such fields; and the work. tags: names are digits.
local function read_fields(body, separator, tags, exact)
  local rest = '[^%' .. separator .. ']*)%' .. separator .. '?'
  local pattern = '^(' .. (tags and '%d+' or '[^=%' .. separator .. ']+') .. ')=(' .. rest
  local root, at, count = {}, 1, 0
  while at <= #body and count < 20000 do
    local _, last, name, value = string.find(body, pattern, at)
    if not last then return false, count * 8 end
    if exact then name, value = marked_text(name), marked_text(value) end
    add_field(root, name, value)
    at, count = last + 1, count + 1
  end
  return count > 0 and at > #body and root, count * 8
end
