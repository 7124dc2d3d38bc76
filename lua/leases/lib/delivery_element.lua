--- delivery_element: a delivered message as two strings, head and body, the same in an inbox and in a reply.
-- Head: `<queue> <token> <delivery> <deadline> <kind> <ref>`, then the entry's other fields, each name and value as
-- `<length>:<text>`, after a line feed. Kind: `b` a body of ours that is JSON, or its type where it is not; `f` an entry that
-- somebody else wrote, without our body field; `r` a large body that stayed in the log. Python's half is ampsq/queues/message.py.

local function split_fields(fields)
  local parts, body = {}, nil
  for i = 1, #fields, 2 do
    if fields[i] == F.body and not body then
      body = fields[i + 1]
    else
      parts[#parts + 1] = #fields[i] .. ':' .. fields[i] .. #fields[i + 1] .. ':' .. fields[i + 1]
    end
  end
  return '\n' .. table.concat(parts), body
end

-- Returns head and body.
local function element_of(queue, token, delivery, deadline, ref, fields)
  if #fields == 2 and fields[1] == F.body then
    return queue.name .. ' ' .. token .. ' ' .. delivery .. ' ' .. deadline .. queue.kind .. ref, fields[2]
  end
  if #fields == 4 and fields[1] == F.told_group and fields[3] == F.body then
    local name = fields[2]
    return queue.name .. ' ' .. token .. ' ' .. delivery .. ' ' .. deadline .. queue.kind .. ref .. '\n' .. #fields[1] .. ':' .. fields[1]
      .. #name .. ':' .. name, fields[4]
  end
  local others, body = split_fields(fields)
  local kind = body and queue.kind or ' f '
  return queue.name .. ' ' .. token .. ' ' .. delivery .. ' ' .. deadline .. kind .. ref .. others, body or ''
end

-- What goes to an inbox: a large body stays in the log, which has it anyway.
local function pushed_element(queue, token, delivery, deadline, ref, fields)
  local head, body = element_of(queue, token, delivery, deadline, ref, fields)
  if #head + #body <= V.body_by_ref then return head, body end
  return queue.name .. ' ' .. token .. ' ' .. delivery .. ' ' .. deadline .. ' r ' .. ref, ''
end
