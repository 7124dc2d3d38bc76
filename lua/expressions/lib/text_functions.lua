--- text_functions: functions of texts. An entry is what kinds its arguments are read as (function_calls.lua), and what it does.
--- @include arithmetic, evaluation_steps

local function text_functions()
  local T, parts_of_crc = {}, {}

  local function found_at(d, text, part)
    local at = find_text(text, part) or 0
    return d.exact and d.exact.of(at) or at
  end

  -- A byte's part of zlib's checksum, shifted out bit by bit.
  local function crc_of_byte(byte)
    for _ = 1, 8 do
      byte = bit.bxor(bit.rshift(byte, 1), byte % 2 == 1 and 0xEDB88320 or 0) % 2 ^ 32
    end
    return byte
  end

  -- zlib's checksum; the parts of those bytes that occur are kept, and the checksums of the document's texts.
  local function crc32(d, text)
    d.checksums = d.checksums or {}
    local crc = d.checksums[text]
    if not crc then
      crc = bit.bnot(0)
      for i = 1, #text do
        local low = bit.band(bit.bxor(crc, string.byte(text, i)), 255)
        local part = parts_of_crc[low]
        if not part then
          part = crc_of_byte(low)
          parts_of_crc[low] = part
        end
        crc = bit.bxor(bit.rshift(crc, 8), part)
      end
      crc = bit.bnot(crc) % 2 ^ 32
      d.checksums[text] = crc
    end
    return d.exact and d.exact.of(crc) or crc
  end

  -- A byte as a pattern, which is quicker.
  local function replaced_byte(d, text, old, new)
    local pattern, count, result = string.gsub(string.gsub(old, '%W', '%%%0'), '%%%z', '%%z'), 0, nil
    if #text * #new > 65536 then
      count = select(2, string.gsub(text, pattern, ''))
      if #text + count * (#new - 1) > 65536 then error(evaluation_steps) end
    end
    result, count = string.gsub(text, pattern, (string.gsub(new, '%%', '%%%%')))
    spend_steps(4 * count)
    return result
  end

  local function replaced(d, text, old, new)
    if old == '' then return text end
    spend_search(text, old)
    if #old == 1 then return replaced_byte(d, text, old, new) end
    local parts, size, from, at = {}, 0, 1, string.find(text, old, 1, true)
    while at do
      spend_steps(4)
      parts[#parts + 1] = string.sub(text, from, at - 1)
      parts[#parts + 1] = new
      size, from = size + at - from + #new, at + #old
      if size > 65536 then error(evaluation_steps) end
      at = string.find(text, old, from, true)
    end
    parts[#parts + 1] = string.sub(text, from)
    if size + #parts[#parts] > 65536 then error(evaluation_steps) end
    return table.concat(parts)
  end

  T.UPPER = {'t', function(_, text) return string.upper(text) end}
  T.LOWER = {'t', function(_, text) return string.lower(text) end}
  T.REVERSE = {'t', function(_, text) return string.reverse(text) end}
  T.LENGTH = {'l', function(d, text) return d.exact and d.exact.of(#text) or #text end}
  T.SUBSTR = {'lww', function(d, text, start, length)
    local from = start >= 0 and start - 1 or #text + start
    local to = length and math.min(from + length, #text) or #text
    if to <= 0 then return '' end
    local part = string.sub(text, math.min(math.max(from, 0), #text) + 1, to)
    spend_steps(math.floor(#part / 16))
    return part
  end}
  T.INSTR = {'tt', found_at}
  T.INSTR_I = {'tt', function(d, text, part) return found_at(d, string.lower(text), string.lower(part)) end}
  T.STREQUAL_I = {'tt', function(_, one, other) return string.lower(one) == string.lower(other) end}
  T.REPLACE = {'ttt', replaced}
  T.CRC32 = {'c', crc32}
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
    if size > 65536 then error(evaluation_steps) end
    spend_steps(math.floor(size / 16))
    return texts[1] and table.concat(texts)
  end

  return T
end
