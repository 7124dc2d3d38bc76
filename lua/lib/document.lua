--- document: a message as expressions see it; its body is decoded when something first asks, and once.

-- cjson takes `1.` and `-.5`, JSON does not: true for a text that cjson took and that has one of them outside of strings.
local function has_bare_point(text)
  local at, seen = string.find(text, '.', 1, true), 0
  while at and seen < 32 do
    local before, after = string.byte(text, at - 1), string.byte(text, at + 1) or 0
    if before == 45 or before >= 48 and before <= 57 and (after < 48 or after > 57) then break end
    at, seen = string.find(text, '.', at + 1, true), seen + 1
  end
  if not at then return false end
  local bare = string.gsub(string.gsub(text, '\\.', ''), '"[^"]*"', '') .. ' '
  return string.find(bare, '%.%D') ~= nil or string.find(bare, '-.', 1, true) ~= nil
end

local json_decoder = {}

-- What the body holds, and whether it is JSON at all.
local function decode_body(text)
  local _, clean = string.find(text, '^%C*')
  if clean < #text and string.find(text, '[%z\1-\8\11\12\14-\31]', clean + 1) then return nil, false end
  local decode = json_decoder.decode
  if not decode then
    local decoder = cjson.new()
    decoder.decode_invalid_numbers(false)
    decoder.decode_max_depth(100)
    decode = decoder.decode
    json_decoder.decode = decode
  end
  local fine, root = pcall(decode, text)
  if not fine or has_bare_point(text) then return nil, false end
  return root, true
end

-- The same text with each number as a string: `n` and its digits; other strings begin with `s`. Backslash escapes give
-- way to control characters meanwhile, which JSON does not have.
local function numbers_as_text(text)
  local escaped = string.find(text, '\\', 1, true)
  if escaped then text = string.gsub(text, '\\([\\"])', {['\\'] = '\1', ['"'] = '\2'}) end
  text = string.gsub(text .. '""', '([^"]*)"([^"]*)"', function(between, inside)
    if string.find(between, '%d') then between = string.gsub(between, '-?%d[%d.eE+-]*', '"n%0"') end
    return between .. '"s' .. inside .. '"'
  end)
  text = string.sub(text, 1, -4)
  return escaped and string.gsub(text, '[\1\2]', {['\1'] = '\\\\', ['\2'] = '\\"'}) or text
end

-- The document of an entry that somebody else wrote, all strings; as numbers_as_text has it if so asked.
local function foreign_root(fields, exact)
  local root, mark = {}, exact and 's' or ''
  for i = 1, #fields, 2 do root[mark .. fields[i]] = mark .. fields[i + 1] end
  return root
end

-- Makes d.root what the body holds, in the given manner, the exact one second; false where the body is not JSON.
local function load_root(d, exact)
  local kept = exact and 'exact_root' or 'plain_root'
  if d[kept] == nil then
    if not d.body then
      d[kept] = foreign_root(d.fields, exact)
    else
      local root, fine = decode_body(exact and numbers_as_text(d.body) or d.body)
      d[kept] = fine and (type(root) == 'table' and root or {})
      d.work = d.work + math.floor(#d.body / 10)
    end
  end
  d.root = d[kept]
  return d.root
end
