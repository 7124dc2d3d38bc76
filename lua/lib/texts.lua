--- texts: functions of texts. An entry is what kinds its arguments are read as (see functions.lua), and what it does.
--- @include numbers, search

local function text_functions()
  local T = {}

  local function found_at(d, text, part)
    local at = find_text(text, part, 1) or 0
    return d.exact and d.exact.of(at) or at
  end

  -- The checksum of zlib, a half byte at a time; a table of 256 would take longer to make than most texts to read.
  local function crc32(d, text)
    local step, crc = {}, bit.bnot(0)
    for i = 0, 15 do
      local value = i
      for _ = 1, 4 do
        value = bit.bxor(bit.rshift(value, 1), value % 2 == 1 and 0xEDB88320 or 0)
        if value < 0 then value = value + 2 ^ 32 end
      end
      step[i] = value
    end
    d.work = d.work + 4 * #text
    for i = 1, #text do
      crc = bit.bxor(crc, string.byte(text, i))
      crc = bit.bxor(bit.rshift(crc, 4), step[bit.band(crc, 15)])
      crc = bit.bxor(bit.rshift(crc, 4), step[bit.band(crc, 15)])
    end
    crc = bit.bnot(crc) % 2 ^ 32
    return d.exact and d.exact.of(crc) or crc
  end

  local function replaced(d, text, old, new)
    if old == '' then return text end
    d.work = d.work + math.floor(#text / 16)
    local parts, size, from = {}, 0, 1
    while true do
      local at = find_text(text, old, from)
      if not at then break end
      parts[#parts + 1] = string.sub(text, from, at - 1)
      parts[#parts + 1] = new
      size, from = size + at - from + #new, at + #old
      d.work = d.work + 4
      if size > 65536 then error(d.steps) end
    end
    parts[#parts + 1] = string.sub(text, from)
    if size + #parts[#parts] > 65536 then error(d.steps) end
    return table.concat(parts)
  end

  T.UPPER = {'t', function(_, text) return string.upper(text) end}
  T.LOWER = {'t', function(_, text) return string.lower(text) end}
  T.REVERSE = {'t', function(_, text) return string.reverse(text) end}
  T.LENGTH = {'t', function(d, text) return d.exact and d.exact.of(#text) or #text end}
  T.SUBSTR = {'tww', function(_, text, start, length)
    local from = start >= 0 and start - 1 or #text + start
    local to = length and math.min(from + length, #text) or #text
    if to <= 0 then return '' end
    return string.sub(text, math.min(math.max(from, 0), #text) + 1, to)
  end}
  T.INSTR = {'tt', found_at}
  T.INSTR_I = {'tt', function(d, text, part) return found_at(d, string.lower(text), string.lower(part)) end}
  T.STREQUAL_I = {'tt', function(_, one, other) return string.lower(one) == string.lower(other) end}
  T.REPLACE = {'ttt', replaced}
  T.CRC32 = {'t', crc32}
  T.CHAR_VALUE = {'w', function(_, code) return code >= 0 and code <= 255 and string.char(code) or nil end}

  function T.CONCAT(d, values, count)
    local texts, size = {}, 0
    for i = 1, count do
      local text = text_of(d, values[i])
      if text then
        texts[#texts + 1] = text
        size = size + #text
      end
    end
    if size > 65536 then error(d.steps) end
    return texts[1] and table.concat(texts)
  end

  return T
end
