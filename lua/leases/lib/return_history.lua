--- return_history: how a message came back each time.
-- In its attempts and in the journal, parted by `;`: `<ms>,<cause>,<subscription>,<client>`, and `!<reason>` where its consumer gave one: in that, what parts is `%` and two digits.

-- Of returns with reasons those that are kept, the last one and that of the last reason among them.
local function trim_returns(told)
  local items, kept, left, size, last_reason = {}, {}, 0, #told, nil
  for item in string.gmatch(told, '[^;]+') do
    left = left + 1
    items[left] = item
    if string.find(item, '!', 1, true) then last_reason = left end
  end
  for i, item in ipairs(items) do
    local is_beyond = left > V.returns_kept or size > V.returns_bytes
    if is_beyond and i ~= last_reason and i < #items then
      left, size = left - 1, size - #item - 1
    else
      kept[#kept + 1] = item
    end
  end
  return table.concat(kept, ';')
end

-- Adds a return to the text of those before, `told`. consumer_reason: nil, or why its consumer gave it back. items: holder -> the text that a return
-- of its messages adds in this call, so that it is put together once.
local function add_return(told, cause, holder, client, consumer_reason, now, items)
  local item = items[holder]
  if not item then
    item = string.format('%.0f', now) .. ',' .. cause .. ',' .. holder .. ',' .. client
    if consumer_reason then
      local function escape(sign) return string.format('%%%02X', string.byte(sign)) end
      item = item .. '!' .. string.gsub(consumer_reason, '[%c%%,;! ]', escape)
    end
    items[holder] = item
  end
  if told == '' then return item end
  if consumer_reason or string.find(told, '!', 1, true) then return trim_returns(told .. ';' .. item) end
  local number = select(2, string.gsub(told, ';', ''))
  if number + 2 > V.returns_kept then told = string.sub(told, string.find(told, ';', 1, true) + 1) end
  return told .. ';' .. item
end
