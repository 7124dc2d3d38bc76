--- document: a message as expressions see it; its body is decoded when something first asks, and once.
--- @include marked_text, source, reading_budget, body_formats()

-- cjson takes `1.` and `-.5`, JSON does not: true for a text that cjson took and that has one outside of strings.
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

-- The same of a large text, in which patterns would cost too much: with each point that may be bare made what no JSON has
-- outside of strings, it is decoded again. Its points were counted.
local function has_bare_points(text, decode)
  local at, from, parts = string.find(text, '.', 1, true), 1, {}
  while at do
    local before, after = string.byte(text, at - 1), string.byte(text, at + 1) or 0
    if before == 45 or before >= 48 and before <= 57 and (after < 48 or after > 57) then
      parts[#parts + 1] = string.sub(text, from, at - 1)
      from = at + 1
    end
    at = string.find(text, '.', at + 1, true)
  end
  if from == 1 then return false end
  parts[#parts + 1] = string.sub(text, from)
  return not pcall(decode, table.concat(parts, '!'))
end

local json_decoder = {} -- kept over calls

-- Decodes as JSON says, but for what is checked beside it.
local function json_decode()
  if not json_decoder.decode then
    local decoder = cjson.new()
    decoder.decode_invalid_numbers(false)
    decoder.decode_max_depth(100)
    json_decoder.decode = decoder.decode
  end
  return json_decoder.decode
end

-- What the body holds, and whether it is JSON at all.
local function decode_body(text)
  local _, clean = string.find(text, '^[ -\255\t\n\r]*')
  if clean < #text then return nil, false end
  local decode = json_decode()
  local fine, root = pcall(decode, text)
  if not fine then return nil, false end
  if #text > V.small_body then
    if has_bare_points(text, decode) then return nil, false end
  elseif has_bare_point(text) then
    return nil, false
  end
  return root, true
end

-- Whether some texts have a control character, but for tabs and ends of lines. To look for each of these characters in all texts together
-- costs less than to look at each byte.
local function has_controls(all)
  for code = 0, 31 do
    if code ~= 9 and code ~= 10 and code ~= 13 and string.find(all, string.char(code), 1, true) then return true end
  end
  return false
end

-- Of many bodies at once what `decode_body` finds of each, false where it finds nothing, or where this does not look: of empty ones, large
-- ones, or where one of all has a control character. What is not JSON costs an error, what is costs none.
local function decode_bodies(texts)
  local all, roots, at, count, decode = table.concat(texts), {}, 0, #texts, json_decode()
  for i = 1, count do roots[i] = false end
  if has_controls(all) then return roots end
  local has_points = string.find(all, '.', 1, true)
  local function decode_next_ones()
    while at < count do
      at = at + 1
      local text = texts[at]
      if text ~= '' and #text <= V.small_body then
        local root = decode(text)
        if not has_points or not has_bare_point(text) then roots[at] = type(root) == 'table' and root or {} end
      end
    end
  end
  repeat until pcall(decode_next_ones)
  return roots
end

-- The work of decoding a small body.
local function reading_work(text)
  return math.floor(#text / 2)
end

local function marked_number(number)
  if #number > 15 or string.find(number, '[.eE]') then return '"\1' .. number .. '"' end
end

-- The same text with each number that is not written as up to 15 digits as a string, \1 and how it is written. The text
-- is JSON, so it has no control characters; backslash escapes give way to them meanwhile.
local function numbers_as_text(text)
  local escaped, long = string.find(text, '\\', 1, true), string.find(text, string.rep('%d', 15))
  if escaped then
    text = string.gsub(text, '\\([\\"])', {['\\'] = '\2', ['"'] = '\3'})
    text = string.gsub(text, '"\\u0001', '"\\u0001\\u0001')
  end
  if long or string.find(text, '%d[.eE]') then
    text = string.gsub(text .. '""', '([^"]*)("[^"]*")', function(between, inside)
      if long and string.find(between, '%d') then
        return string.gsub(between, '-?%d[%d.eE+-]*', marked_number) .. inside
      elseif not long and string.find(between, '%d[.eE]') then
        return string.gsub(between, '-?%d+[.eE][%d.eE+-]*', '"\1%0"') .. inside
      end
    end)
    text = string.sub(text, 1, -3)
  end
  return escaped and string.gsub(text, '[\2\3]', {['\2'] = '\\\\', ['\3'] = '\\"'}) or text
end

-- The document of an entry that somebody else wrote, all strings; as numbers_as_text has it if so asked.
local function foreign_root(fields, exact)
  local root, as_is = {}, not exact
  for i = 1, own_fields(fields), 2 do
    root[as_is and fields[i] or marked_text(fields[i])] = as_is and fields[i + 1] or marked_text(fields[i + 1])
  end
  return root
end

local other_formats = {}

-- What a body of another message type than JSON holds, false where it is not of its type.
local function read_other(d, exact)
  other_formats.known = other_formats.known or body_formats()
  local root, count = other_formats.known.read_body(d.format, d.body, values_allowed(d), exact)
  d.work = d.work + count * 8 + math.floor(#d.body / 16)
  if count > values_allowed(d) then d.unread = 'steps' end
  spend_values(d, count)
  -- There are texts alone, of which nothing has to be told apart.
  if d.format ~= 'msgpack' then d.doubles = true end
  return root
end

-- Makes d.root what the body holds, false where it is not of its message type or is not read.
local function load_root(d)
  if not d.body then
    d.root = foreign_root(d.fields)
  elseif #d.body > V.small_body and not admit_large_body(d) then
    d.root = false
  elseif d.format then
    d.root = read_other(d, false)
  else
    local root, fine = decode_body(d.body)
    d.root = fine and (type(root) == 'table' and root or {})
    -- Of a large body the signs were counted, and are work already.
    d.work = d.work + (d.steps and math.floor(#d.body / 8) or reading_work(d.body))
  end
end

-- Numbers of a large body are doubles, however they are written: it is not read again.
local function load_exact_root(d)
  if not d.body then return foreign_root(d.fields, true) end
  if d.doubles then return d.root end
  if d.format then return read_other(d, true) end
  d.work = d.work + 2 * #d.body
  local text = numbers_as_text(d.body)
  if text == d.body then return d.root end
  local root = json_decoder.decode(text)
  return type(root) == 'table' and root or {}
end

-- Makes d.root the same as numbers_as_text has it, or without `exact` as load_root made it.
local function switch_root(d, exact)
  if exact then
    d.exact_root = d.exact_root or load_exact_root(d)
    d.plain_root, d.root = d.root, d.exact_root
  else
    d.root = d.plain_root
  end
  d.exact = exact
end
