--- group_lists: messages of a group that wait unread, in the order of the log: the first and the last of them stand in the group's text, the rest in pieces.
--- @include batch
-- What waits for its group and was never delivered has no place of its own: it stays unread, and its ref is listed (listing.lua says what of
-- the log is). What left the queue otherwise is passed over when its turn comes. A list that is not of the listing that there is now is void: the
-- queue has read all of it.

-- Few numbers occur again and again in what groups count: texts and numbers that were met are kept, a thousand of them. To make a text of a
-- number is work also where a command is given one.
local known_numbers = {} -- kept over calls
local known_digits = {} -- kept over calls

local function digits_of(number)
  local digits = known_digits[number]
  if digits then return digits end
  -- A whole number of 53 bits: as a float it would take five times as long.
  digits = string.format('%d', number)
  if number < 1000 then known_digits[number], known_numbers[digits] = digits, number end
  return digits
end

-- value: the group's text; from: where the list begins there. behind: how many are behind the pieces; suffix: how all refs end, which stands there
-- once: `/` and their topic.
local function read_list(state, value, from)
  local listing, listed, pieces, suffix, at = string.match(value, '^(%d+) (%d+) ([%d.]+) (%S+) ()', from)
  local ending, numbers = string.find(value, '  ', at, true), known_numbers
  state.listing, state.listed, state.suffix = listing, numbers[listed] or tonumber(listed), suffix
  state.first_piece, state.pieces, state.behind = 0, 0, 0
  if pieces ~= '0' then
    local first, number, behind = string.match(pieces, '^(%d+)%.(%d+)%.(%d+)$')
    state.first_piece, state.pieces, state.behind = tonumber(first), tonumber(number), tonumber(behind)
  end
  state.front, state.back = string.sub(value, at, ending - 1), string.sub(value, ending + 2)
end

local function list_text(queue, state)
  local listing = string.match(queue.listed or '0', '^%d+')
  local pieces, listed = '0', state.listed
  if state.pieces + state.behind > 0 then
    pieces = digits_of(state.first_piece) .. '.' .. digits_of(state.pieces) .. '.' .. digits_of(state.behind)
  end
  return '\nl' .. listing .. ' ' .. digits_of(listed) .. ' ' .. pieces .. ' ' .. state.suffix .. ' ' .. state.front .. '  ' .. state.back
end

local function piece_of(state, number)
  return state.name .. '\000' .. string.format('%d', number)
end

-- Refs join a list, behind all that is in it. items: fields and texts of pieces, which the caller writes.
local function append_to_list(state, refs, items)
  local at, number = 0, #refs
  if state.listed == 0 then state.suffix = string.match(refs[1], '/.*$') end
  local last = -#state.suffix - 1
  for i = 1, number do refs[i] = string.sub(refs[i], 1, last) end
  if state.listed == 0 then
    at = math.min(number, V.listed_piece)
    state.first_piece, state.pieces, state.front, state.back, state.behind = 0, 0, table.concat(refs, ' ', 1, at), '', 0
  end
  state.listed, state.waiting = state.listed + number, state.waiting + number
  while at < number do
    local some = math.min(number - at, V.listed_piece - state.behind)
    local text = table.concat(refs, ' ', at + 1, at + some)
    state.back, state.behind, at = state.behind > 0 and state.back .. ' ' .. text or text, state.behind + some, at + some
    if state.behind == V.listed_piece then
      items[#items + 1], items[#items + 2] = piece_of(state, state.first_piece + state.pieces), state.back
      state.pieces, state.back, state.behind = state.pieces + 1, '', 0
    end
  end
end

-- The first ref of a list that has some.
local function first_listed(state)
  local front = state.front
  local at = string.find(front, ' ', 1, true)
  return (at and string.sub(front, 1, at - 1) or front) .. state.suffix
end

-- Refs of a list, behind so many of them.
local function listed_refs(queue, state, from, count)
  local refs, at, last, piece = {}, 0, from + count, 0
  if state.listed == 0 or count <= 0 then return refs end
  local function add(text)
    for ref in string.gmatch(text, '%S+') do
      if at >= last then return end
      at = at + 1
      if at > from then refs[at - from] = ref .. state.suffix end
    end
  end
  add(state.front)
  while piece < state.pieces and at < last do
    if at + V.listed_piece <= from then
      at, piece = at + V.listed_piece, piece + 1
    else
      local fields, number = {}, math.min(math.ceil((last - at) / V.listed_piece), state.pieces - piece, 50)
      for i = 1, number do fields[i] = piece_of(state, state.first_piece + piece + i - 1) end
      for _, text in ipairs(call('HMGET', K.listed(queue.name), unpack(fields))) do add(text or '') end
      piece = piece + number
    end
  end
  add(state.back)
  return refs
end

-- How many of a list are before a ref. Of the pieces those are read that halve what is left.
local function rank_in_list(queue, state, ref)
  local number, low, high = 0, 0, state.pieces
  if state.listed == 0 then return 0 end
  local function count(text)
    for each in string.gmatch(text, '%S+') do
      if each .. state.suffix >= ref then return true end
      number = number + 1
    end
    return false
  end
  local function piece_text(at)
    return call('HGET', K.listed(queue.name), piece_of(state, state.first_piece + at)) or ''
  end
  if count(state.front) then return number end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local first = string.match(piece_text(middle), '^%S+')
    if first and first .. state.suffix >= ref then high = middle else low = middle + 1 end
  end
  if low > 0 then number = number + (low - 1) * V.listed_piece end
  if low > 0 and count(piece_text(low - 1)) then return number end
  if low == state.pieces then count(state.back) end
  return number
end

-- What follows the front of a list, which is over. A piece that is lost counts no more.
local function next_front(queue, state)
  local text = ''
  while text == '' and state.pieces > 0 do
    local piece = piece_of(state, state.first_piece)
    text = call('HGET', K.listed(queue.name), piece) or ''
    call('HDEL', K.listed(queue.name), piece)
    state.first_piece, state.pieces = state.first_piece + 1, state.pieces - 1
    if text == '' then state.listed, state.waiting = state.listed - V.listed_piece, state.waiting - V.listed_piece end
  end
  if text == '' then text, state.back, state.behind = state.back, '', 0 end
  return text
end

-- The first so many of a list stand in the group's text: those that may go. By it they are known when pieces are gone.
local function keep_in_front(queue, state, number)
  if number <= 1 then return end
  while state.pieces > 0 and select(2, string.gsub(state.front, '%S+', '')) < number do
    local text = next_front(queue, state)
    if text ~= '' then state.front = state.front .. ' ' .. text end
  end
end

-- The first ref leaves a list, if it is this one. Whether it was.
local function take_first_off(queue, state, ref)
  if state.listed == 0 or first_listed(state) ~= ref then return false end
  state.front = string.sub(state.front, #ref - #state.suffix + 2)
  state.listed, state.waiting = state.listed - 1, state.waiting - 1
  if state.front == '' then state.front = next_front(queue, state) end
  if state.front == '' then state.listed, state.waiting = 0, state.waiting - state.listed end
  return true
end

-- Refs leave a list: ref -> true. Mostly they are its first ones; else they are among those that may go, and what is before them stays at the
-- front. Those that were in the list are false then.
local function take_off_list(queue, state, refs)
  local front, kept, last, taken = state.listed > 0 and state.front or '', {}, '', 0
  for ref in pairs(refs) do
    if ref > last then last = ref end
  end
  while front ~= '' do
    local at, is_over = 1, false
    for text, following in string.gmatch(front, '(%S+) ?()') do
      local ref = text .. state.suffix
      if ref > last then
        is_over = true
        break
      end
      if refs[ref] then taken, refs[ref] = taken + 1, false else kept[#kept + 1] = text end
      at = following
    end
    front = string.sub(front, at)
    if is_over then break end
    front = next_front(queue, state)
  end
  if kept[1] then front = table.concat(kept, ' ') .. (front ~= '' and ' ' .. front or '') end
  state.front, state.listed, state.waiting = front, state.listed - taken, state.waiting - taken
  if front == '' then state.listed, state.waiting = 0, state.waiting - state.listed end
end
