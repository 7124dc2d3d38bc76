--- record_text: a record of the state of the world as text: its message's ID, when its life is over, its entry.
--- @include delivery_element, source

-- ends: ms, or nil. `b`: a body of ours stands behind the other fields; `f`: somebody else's entry, fields alone.
local function record_text(id, fields, ends)
  local others, body = split_fields(fields)
  return string.format('%s %.0f %s %d', id, ends or 0, body and 'b' or 'f', #others) .. others .. (body or '')
end

local function end_of_record(text)
  local ends = tonumber(string.match(text, ' (%d+)'))
  return ends > 0 and ends or nil
end

local function is_record_over(text, now)
  local ends = end_of_record(text)
  return ends ~= nil and ends <= now
end

-- ID and fields, as XRANGE would give the entry; our body is the first.
local function read_record(text)
  local id, kind, size, at = string.match(text, '^(%S+) %d+ (%l) (%d+)()')
  local last, fields = at + size, {}
  if kind == 'b' then fields[1], fields[2] = F.body, string.sub(text, last) end
  at = at + 1
  while at < last do
    local length, from = string.match(text, '^(%d+):()', at)
    at = from + length
    fields[#fields + 1] = string.sub(text, from, at - 1)
  end
  return id, fields
end

-- The body; of somebody else's entry its fields as JSON.
local function body_of_record(text)
  local kind, size, at = string.match(text, '^%S+ %d+ (%l) (%d+)()')
  if kind == 'b' then return string.sub(text, at + size) end
  local _, fields = read_record(text)
  local members = {}
  for i = 1, own_fields(fields), 2 do members[fields[i]] = fields[i + 1] end
  return cjson.encode(members)
end
