--- json_merge: merging one JSON object into another by their texts, so that nothing that stays is written anew.
--- @include reading_budget
-- Both texts were decoded before, so they are JSON, nested a hundred deep at most; each byte is looked at once. Patterns that are anchored
-- go over what they do not look for five times as fast.

local function after_space(text, at)
  return (string.find(text, '[^ \t\r\n]', at))
end

-- The place behind the string that begins at `at`.
local function after_string(text, at)
  repeat
    at = string.match(text, '^[^"\\]*()', at + 1)
    local escaped = string.byte(text, at) == 92
    if escaped then at = at + 1 end
  until not escaped
  return at + 1
end

local function after_value(text, at)
  local first = string.byte(text, at)
  if first == 34 then return after_string(text, at) end
  if first ~= 123 and first ~= 91 then return string.match(text, '^[^,%]} \t\r\n]*()', at) end
  local depth = 0
  repeat
    local sign = string.byte(text, at)
    if sign == 34 then
      at = after_string(text, at)
    else
      depth = depth + ((sign == 123 or sign == 91) and 1 or -1)
      at = at + 1
    end
    if depth > 0 then at = string.match(text, '^[^"%[%]{}]*()', at) end
  until depth == 0
  return at
end

-- The name of the member that begins at `at`, decoded, and where its value begins.
local function member_at(text, at)
  local ending = after_string(text, at)
  local name = string.sub(text, at + 1, ending - 2)
  if string.find(name, '\\', 1, true) then name = cjson.decode('["' .. name .. '"]')[1] end
  return name, after_space(text, after_space(text, ending) + 1)
end

-- Calls visit(name, value's place, member's place) for each member of the object at `at`; it gives the place behind the
-- value. Returns the place of the closing bracket.
local function visit_members(text, at, visit)
  at = after_space(text, at + 1)
  while string.byte(text, at) ~= 125 do
    local name, from = member_at(text, at)
    at = after_space(text, visit(name, from, at))
    if string.byte(text, at) == 44 then at = after_space(text, at + 1) end
  end
  return at
end

-- An object as its members: of each its text, its value's, and what is in that where it is an object. Of equal names the
-- last one counts.
local function parse_changes(text, at)
  local changes, names = {}, {}
  local ending = visit_members(text, at, function(name, from, member)
    local inner, after = nil, nil
    if string.byte(text, from) == 123 then
      inner, after = parse_changes(text, from)
    else
      after = after_value(text, from)
    end
    if not changes[name] then names[#names + 1] = name end
    changes[name] = {member = string.sub(text, member, after - 1), value = string.sub(text, from, after - 1), inner = inner}
    return after
  end)
  return {by_name = changes, names = names}, ending + 1
end

-- Adds the object at `at` with the changes in it to `out`; returns the place behind it.
local function splice_object(text, at, changes, out)
  local copied, found, last = at, {}, nil
  local ending = visit_members(text, at, function(name, from)
    local change = changes.by_name[name]
    local after
    if not change then
      after = after_value(text, from)
    else
      found[name] = true
      out[#out + 1] = string.sub(text, copied, from - 1)
      if change.inner and string.byte(text, from) == 123 then
        after = splice_object(text, from, change.inner, out)
      else
        after = after_value(text, from)
        out[#out + 1] = change.value
      end
      copied = after
    end
    last = after
    return after
  end)
  -- New members come behind the last one, before the space that closes the object.
  local rest, separator = last or at + 1, last and ',' or ''
  out[#out + 1] = string.sub(text, copied, rest - 1)
  for _, name in ipairs(changes.names) do
    if not found[name] then
      out[#out + 1] = separator .. changes.by_name[name].member
      separator = ','
    end
  end
  out[#out + 1] = string.sub(text, rest, ending)
  return ending + 1
end

-- Why a text is not merged: each sign and each escape is a step of Lua here. A record may be older than its topic's limit.
local function merge_excess(text, topic)
  if #text <= V.small_body then return nil end
  if #text > body_limit(topic) then return 'limit' end
  if count_signs(text, 30000) > 30000 or count_sign(text, '\\', 20000) > 20000 then return 'steps' end
end

-- The text of a JSON object with another one merged into it: its members replace those of the same name, objects are merged, and
-- all else stays to the byte. What is no object is replaced.
local function merge_json(text, delta)
  local at, from = after_space(text, 1), after_space(delta, 1)
  if string.byte(text, at) ~= 123 or string.byte(delta, from) ~= 123 then return delta end
  local out = {}
  local ending = splice_object(text, at, (parse_changes(delta, from)), out)
  return string.sub(text, 1, at - 1) .. table.concat(out) .. string.sub(text, ending)
end
