--- messagepack: MessagePack as documents. Reading `r`: its `text`, the place `at` which it has come to, how many values it may
--- still have (`left`), and whether numbers are to be exact; error(r) ends it where the body is not MessagePack.
--- @include marked_text, messagepack_numbers

local function read_text(r, size)
  local at = pass_bytes(r, size)
  local text = string.sub(r.text, at, r.at - 1)
  return r.exact and marked_text(text) or text
end

-- NULL; a time stamp has to be one.
local function read_extension(r, size)
  local kind = string.byte(r.text, pass_bytes(r, 1))
  local at = pass_bytes(r, size)
  if kind == 255 then
    if size ~= 4 and size ~= 8 and size ~= 12 then error(r) end
    local a, b, c, d = string.byte(r.text, at, at + 3)
    local high = ((a * 256 + b) * 256 + c) * 256 + d
    if size == 8 and math.floor(high / 4) >= 1e9 or size == 12 and high >= 1e9 then error(r) end
  end
  return cjson.null
end

-- A name: a text, or the digits of an integer; nil for what else is no array and no map.
local function read_key(r, depth, again)
  local first, exact = string.byte(r.text, r.at) or 0, r.exact
  if first >= 160 and first < 192 then
    -- Nearly all names are short texts.
    r.at, r.left = r.at + 1, r.left - 1
    if r.left < 0 then error(r) end
    return read_text(r, first - 160)
  end
  if first >= 128 and first < 160 or first >= 220 and first < 224 then error(r) end
  r.exact = true
  local key = again(r, depth)
  r.exact = exact
  if first >= 160 and first < 192 or first >= 196 and first < 199 or first >= 217 and first < 220 then
    return not exact and string.byte(key, 1) == 1 and string.sub(key, 2) or key
  end
  if first >= 192 and first < 204 or first >= 212 and first < 217 then return nil end
  return type(key) == 'number' and string.format('%.0f', key) or marked_digits(key)
end

local function read_map(r, count, depth, again)
  if depth >= 100 then error(r) end
  local map = {}
  for _ = 1, count do
    local key = read_key(r, depth + 1, again)
    local value = again(r, depth + 1)
    if key then map[key] = value end
  end
  return map
end

local function read_array(r, count, depth, again)
  if depth >= 100 then error(r) end
  local array = {}
  for i = 1, count do array[i] = again(r, depth + 1) end
  return array
end

-- What begins with a byte from 0xc0 to 0xdf.
local function read_long(r, first, depth, again)
  if first == 192 then return cjson.null end
  if first == 193 then error(r) end
  if first < 196 then return first == 195 end
  if first < 199 then return read_text(r, read_unsigned(r, 2 ^ (first - 196))) end
  if first < 202 then return read_extension(r, read_unsigned(r, 2 ^ (first - 199))) end
  if first < 204 then return read_float(r, first == 202 and 4 or 8) end
  if first < 208 then return read_integer(r, 2 ^ (first - 204), false) end
  if first < 212 then return read_integer(r, 2 ^ (first - 208), true) end
  if first < 217 then return read_extension(r, 2 ^ (first - 212)) end
  if first < 220 then return read_text(r, read_unsigned(r, 2 ^ (first - 217))) end
  local count = read_unsigned(r, first % 2 == 0 and 2 or 4)
  return (first < 222 and read_array or read_map)(r, count, depth, again)
end

local function read_value(r, depth)
  local first = string.byte(r.text, r.at)
  r.at, r.left = r.at + 1, r.left - 1
  if not first or r.left < 0 then error(r) end
  if first < 128 then return first end
  if first >= 224 then return first - 256 end
  if first < 144 then return read_map(r, first - 128, depth, read_value) end
  if first < 160 then return read_array(r, first - 144, depth, read_value) end
  if first < 192 then return read_text(r, first - 160) end
  return read_long(r, first, depth, read_value)
end

-- false where the body is not MessagePack or has more than `most` values; and how many were read.
local function read_packed(body, most, exact)
  local r = {text = body, at = 1, left = most, exact = exact}
  local fine, root = pcall(read_value, r, 0)
  if not fine and root ~= r then error(root, 0) end
  local count = most - r.left
  if not fine or r.at <= #body then return false, count end
  return type(root) == 'table' and root or {}, count
end
