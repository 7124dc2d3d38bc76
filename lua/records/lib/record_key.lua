--- record_key: the key of a message of a topic that keeps records.
--- @include identifier, evaluation, arithmetic
-- All of expressions/lib/expression.lua would cost each publish more than reading its bodies.

-- What a value is written as in a key; NULL and a list are none. Whole numbers are mostly short, and then the same text
-- whether they are read as doubles or exactly.
local function key_text(d, value)
  local kind = type(value)
  if kind == 'number' and value % 1 == 0 and value < 1e15 and value > -1e15 and value ~= 0 then
    return string.format('%.0f', value)
  end
  if kind == 'table' and not value.hi then return nil end
  return text_of(d, value)
end

-- paths: of each identifier its tree, a tab, and how it is written, one a line.
local function compile_key(paths)
  local key = {}
  for tree, text in string.gmatch(paths, '([^\t\n]+)\t([^\n]*)') do
    key[#key + 1] = {text = text, compiled = {run = compile_identifier(cjson.decode(tree)), cost = 10}}
  end
  return key
end

-- The text of an entry's key; or nil, the first identifier that it lacks, and what reading it went beyond if it is not read. format: nil of
-- JSON. Parts are joined by `|`, which is written `\|` within one, as `\` is `\\`; a key of one part is that part. The work comes last:
-- what JSON holds that is not large is not counted, so it is what its bytes may cost at the most.
local function key_of(key, topic, format, fields)
  local document, parts = {topic = topic, fields = fields, format = format, work = 0}, {}
  for i = 1, #fields, 2 do
    if fields[i] == F.body then document.body = fields[i + 1] end
  end
  local body = document.body
  if body and not format and #body <= V.small_body then document.work = #body end
  for i = 1, #key do
    local part = evaluate(key[i].compiled, document, key_text)
    if part == nil then return nil, key[i].text, document.unread, document.work end
    parts[i] = #key > 1 and string.gsub(part, '[\\|]', '\\%0') or part
  end
  return table.concat(parts, '|'), nil, nil, document.work
end
