--- ref: a message's place in one queue, as text whose order is the order of arrival.
-- Each number is written after a letter that counts its digits, so longer numbers sort later.

local function order_of(id)
  local ms, sequence = string.match(id, '^(%d+)%-(%d+)$')
  return string.format('%c%s%c%s', 96 + #ms, ms, 96 + #sequence, sequence)
end

-- For many refs of one topic: neighbours mostly share their milliseconds, and few lengths of sequence occur.
local function ref_maker(topic)
  local prefix, order, letters, ending = '-', '', {}, '/' .. topic
  return function(id)
    if string.find(id, prefix, 1, true) ~= 1 then
      local ms = string.match(id, '^%d+')
      prefix, order = ms .. '-', string.char(96 + #ms) .. ms
    end
    local sequence = string.sub(id, #prefix + 1)
    local letter = letters[#sequence]
    if not letter then
      letter = string.char(96 + #sequence)
      letters[#sequence] = letter
    end
    return order .. letter .. sequence .. ending
  end
end

local function ref_of(topic, id)
  local ms, sequence = string.match(id, '^(%d+)%-(%d+)$')
  return string.format('%c%s%c%s/%s', 96 + #ms, ms, 96 + #sequence, sequence, topic)
end

local function parse_ref(ref)
  local ms, sequence, topic = string.match(ref, '^%l(%d+)%l(%d+)/(.*)$')
  if not ms then return nil end
  return topic, ms .. '-' .. sequence
end
