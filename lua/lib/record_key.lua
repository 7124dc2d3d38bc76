--- record_key: the key of a message of a topic that keeps records.
--- @include plan

-- paths: of each identifier its tree, a tab, and how it is written, one a line.
local function compile_key(paths)
  local key = {}
  for tree, text in string.gmatch(paths, '([^\t\n]+)\t([^\n]*)') do
    key[#key + 1] = {text = text, compiled = language().compile_expression(tree)}
  end
  return key
end

-- The text of an entry's key, or nil and the first identifier that it lacks. Parts are joined by `|`, which is
-- written `\|` within one, as `\` is `\\`; a key of one part is that part.
local function key_of(key, topic, id, fields, now)
  local document = language().open_document(topic, id, fields, 0, now)
  local parts = {}
  for i = 1, #key do
    local part = language().expression_key(key[i].compiled, document)
    if part == nil then return nil, key[i].text end
    parts[i] = #key > 1 and string.gsub(part, '[\\|]', '\\%0') or part
  end
  return table.concat(parts, '|')
end
