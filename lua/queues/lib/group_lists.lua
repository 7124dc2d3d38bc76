--- group_lists: messages of a group that wait unread, in the order of the log: the first ones stand in the group's text, the rest in pieces.
--- @include batch
-- What waits for its group and was never delivered has no place of its own: it stays unread, and its ref is listed (listing.lua says what of
-- the log is), without its topic, which is that of all. What left the queue otherwise is passed over when its turn comes. A list that is not of the
-- listing that there is now is void: the queue has read all of it.

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

-- How the refs of lists end, which stands in none: `/` and their topic.
local function list_suffix(queue)
  local suffix = queue.list_suffix
  if not suffix then
    suffix = '/' .. (string.match(queue.listed or '', ' %w+/(.+)$') or queue.topic)
    queue.list_suffix = suffix
  end
  return suffix
end

-- value: the group's text; from: where the list begins there: the number of its listing, how many it has, its pieces (`0`, or the first one's number,
-- how many they are, and how many the last one has), the first refs.
local function read_list(state, value, from)
  local listing, listed, pieces, at = string.match(value, '^(%d+) (%d+) (%S+) ()', from)
  state.listing, state.listed, state.pieces = listing, known_numbers[listed] or tonumber(listed), pieces
  state.front = string.sub(value, at)
end

-- What stands in the group's text before the first refs.
local function list_head(queue, state)
  state.listing = state.listing or string.match(queue.listed, '^%d+')
  return '\nl' .. state.listing .. ' ' .. digits_of(state.listed) .. ' ' .. state.pieces .. ' '
end

local function empty_list(state)
  state.listed, state.listing, state.pieces, state.front, state.first = 0, nil, '0', '', nil
end

-- The number of the first piece, how many there are, and how many refs the last one has; zeros where there is none.
local function numbers_of_pieces(state)
  if state.pieces == '0' then return 0, 0, 0 end
  local first, number, last = string.match(state.pieces, '^(%d+)%.(%d+)%.(%d+)$')
  return tonumber(first), tonumber(number), tonumber(last)
end

local function keep_pieces(state, first, number, last)
  state.pieces = number > 0 and digits_of(first) .. '.' .. digits_of(number) .. '.' .. digits_of(last) or '0'
end

local function piece_of(state, number)
  return state.name .. '\000' .. digits_of(number)
end

-- Refs without their topic join a list, behind all that is in it. last_text: of the piece with room; items: fields and texts of pieces, which the
-- caller writes.
local function append_to_list(state, stems, last_text, items)
  local at, number, concat, had = 0, #stems, table.concat, state.listed
  if had == 0 then empty_list(state) end
  state.listed, state.waiting = had + number, state.waiting + number
  if state.pieces == '0' then
    local text = concat(stems, ' ', 1, math.min(number, math.max(2 * V.listed_piece - had, 0)))
    if text ~= '' then state.front = had > 0 and state.front .. ' ' .. text or text end
    if had + number <= 2 * V.listed_piece then return end
    at = math.max(2 * V.listed_piece - had, 0)
  end
  local first, pieces, behind = numbers_of_pieces(state)
  while at < number do
    local text = last_text and last_text .. ' ' or ''
    if not last_text then pieces, behind = pieces + 1, 0 end
    local some = math.min(number - at, V.listed_piece - behind)
    items[#items + 1], items[#items + 2] = piece_of(state, first + pieces - 1), text .. concat(stems, ' ', at + 1, at + some)
    at, behind, last_text = at + some, behind + some, nil
  end
  keep_pieces(state, first, pieces, behind)
end

-- The first ref of a list that has some.
local function first_listed(queue, state)
  local first = state.first
  if not first then
    local front = state.front
    local at = string.find(front, ' ', 1, true)
    first = (at and string.sub(front, 1, at - 1) or front) .. list_suffix(queue)
    -- Also where it comes to stand when others join.
    state.first, state.second_at = first, (at or #front + 1) + 1
  end
  return first
end

-- Refs of a list, behind so many of them.
local function listed_refs(queue, state, from, count)
  local refs, at, last, piece = {}, 0, from + count, 0
  if state.listed == 0 or count <= 0 then return refs end
  local suffix, first, pieces = list_suffix(queue), numbers_of_pieces(state)
  local function add(text)
    for stem in string.gmatch(text, '%S+') do
      if at >= last then return end
      at = at + 1
      if at > from then refs[at - from] = stem .. suffix end
    end
  end
  add(state.front)
  if at < from and pieces > 0 then
    -- Each has as many but the last one, which may have fewer.
    piece = math.min(math.floor((from - at) / V.listed_piece), pieces - 1)
    at = at + piece * V.listed_piece
  end
  while piece < pieces and at < last do
    local fields, number = {}, math.min(math.ceil((last - at) / V.listed_piece), pieces - piece, 50)
    for i = 1, number do fields[i] = piece_of(state, first + piece + i - 1) end
    for _, text in ipairs(call('HMGET', K.listed(queue.name), unpack(fields))) do add(text or '') end
    piece = piece + number
  end
  return refs
end

-- How many of a list are before a ref. Of the pieces those are read that halve what is left.
local function rank_in_list(queue, state, ref)
  local number, suffix, first, high = 0, list_suffix(queue), numbers_of_pieces(state)
  local low = 0
  if state.listed == 0 then return 0 end
  local function count(text)
    for stem in string.gmatch(text, '%S+') do
      if stem .. suffix >= ref then return true end
      number = number + 1
    end
    return false
  end
  local function piece_text(at)
    return call('HGET', K.listed(queue.name), piece_of(state, first + at)) or ''
  end
  if count(state.front) then return number end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local stem = string.match(piece_text(middle), '^%S+')
    if stem and stem .. suffix >= ref then high = middle else low = middle + 1 end
  end
  if low > 0 then
    number = number + (low - 1) * V.listed_piece
    count(piece_text(low - 1))
  end
  return number
end

-- What follows the front of a list, which is over: the texts of its first pieces, `most` at most. A piece that is lost counts no more.
local function next_front(queue, state, most)
  if state.pieces == '0' then return '' end
  local first, number, last = numbers_of_pieces(state)
  local text = ''
  while text == '' and number > 0 do
    local pieces, some, found = {}, math.min(number, most), {}
    for i = 1, some do pieces[i] = piece_of(state, first + i - 1) end
    local texts = call('HMGET', K.listed(queue.name), unpack(pieces))
    call('HDEL', K.listed(queue.name), unpack(pieces))
    for i = 1, some do
      if texts[i] then
        found[#found + 1] = texts[i]
      else
        local lost = (i < number) and V.listed_piece or last
        state.listed, state.waiting = state.listed - lost, state.waiting - lost
      end
    end
    text = table.concat(found, ' ')
    first, number = first + some, number - some
  end
  keep_pieces(state, first, number, last)
  return text
end

-- The first so many of a list stand in the group's text: those that may go. By it they are known when pieces are gone.
local function keep_in_front(queue, state, number)
  if number <= 1 then return end
  while state.pieces ~= '0' and select(2, string.gsub(state.front, '%S+', '')) < number do
    local text = next_front(queue, state, 1)
    if text ~= '' then state.front = state.front .. ' ' .. text end
  end
end

-- Nothing is left of a list: whatever it counts beyond that is lost.
local function close_list(state)
  state.waiting = state.waiting - state.listed
  empty_list(state)
end

-- The first ref leaves a list, if it is this one. Whether it was.
local function take_first_off(queue, state, ref)
  if state.listed == 0 or (state.first or first_listed(queue, state)) ~= ref then return false end
  local front = string.sub(state.front, state.second_at)
  state.listed, state.waiting, state.first = state.listed - 1, state.waiting - 1, nil
  state.front = front ~= '' and front or next_front(queue, state, 1)
  if state.front == '' then close_list(state) end
  return true
end

-- Takes refs out of a list. refs: ref -> true, `number` of them; this sets those that were in the list to false. Mostly they are its first ones; a
-- ref of the list that stands before one of them stays at the front.
local function take_off_list(queue, state, refs, number)
  local front, suffix, kept, last, left = state.listed > 0 and state.front or '', list_suffix(queue), {}, nil, number
  while front ~= '' and left > 0 do
    local at = 1
    for text, following in string.gmatch(front, '(%S+) ?()') do
      local ref = text .. suffix
      if refs[ref] then
        refs[ref], left = false, left - 1
      else
        if not last then
          for each in pairs(refs) do last = last and last > each and last or each end
        end
        -- The others of them are not there.
        if ref > last then
          number, left = number - left, 0
          break
        end
        kept[#kept + 1] = text
      end
      at = following
      if left == 0 then break end
    end
    front = string.sub(front, at)
    if left > 0 then front = next_front(queue, state, math.min(math.ceil(left / V.listed_piece), 50)) end
  end
  number = number - left
  if kept[1] then front = table.concat(kept, ' ') .. (front ~= '' and ' ' .. front or '') end
  if front == '' and state.listed > number then front = next_front(queue, state, 1) end
  state.front, state.first, state.listed, state.waiting = front, nil, state.listed - number, state.waiting - number
  if front == '' then close_list(state) end
end
