--- inbox: what was pushed to a subscription; only barriers and what is still leased under its token are handed out.
--- @include group_state(), leases, ref, delivery_element, settlement, lease_runs

local function parse_element_head(head)
  local queue, token, delivery, deadline, kind, ref = string.match(head, '^(%S+) (%d+) (%d+) (%d+) (%w+) ([^\n]+)')
  return {queue = queue, token = token, delivery = delivery, deadline = deadline, kind = kind, ref = ref}
end

-- A barrier was delivered outside of all leases.
local function is_barrier_element(element)
  return element.delivery == '0'
end

-- Of heads and bodies in turn the heads as `parse_element_head` reads them. `lease` is the value of an element's lease, nil when it ended
-- or the message is held under a newer token.
local function parse_elements(texts)
  local elements, of_queues = {}, {}
  for i = 1, #texts, 2 do
    local element = parse_element_head(texts[i])
    elements[#elements + 1] = element
    if not is_barrier_element(element) and load_queue(element.queue) then
      local group = of_queues[element.queue] or {refs = {}, elements = {}}
      of_queues[element.queue] = group
      group.refs[#group.refs + 1], group.elements[#group.elements + 1] = element.ref, element
    end
  end
  for name, group in pairs(of_queues) do
    for i, value in pairs(lease_values(load_queue(name), group.refs)) do
      local element = group.elements[i]
      if value and string.match(value, '^%d+') == element.token then element.lease = value end
    end
  end
  return elements
end

-- A body that was pushed by reference is read from the log; nil when somebody removed it there. lease: its value, or nil.
local function whole_element(element, head, body, lease)
  if element.kind ~= 'r' then return head, body end
  local topic, id = parse_ref(element.ref)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  if not entry then return nil end
  local queue, fields = load_queue(element.queue), entry[2]
  if queue.concurrency and lease then fields = group_state().with_group_of_lease(queue, fields, lease) end
  return element_of(queue, element.token, element.delivery, element.deadline, element.ref, fields)
end

-- Returns heads and bodies in turn, and whether it ended because there were too many bytes.
local function take_inbox(id, wanted, freed)
  local out, bytes = {}, 0
  while #out < 2 * wanted and bytes < V.bytes do
    local texts = call('LPOP', K.inbox(id), math.min(2 * wanted - #out, 128))
    if not texts then break end
    for i, element in ipairs(parse_elements(texts)) do
      if bytes >= V.bytes then
        for back = #texts, 2 * i - 1, -1 do call('LPUSH', K.inbox(id), texts[back]) end
        break
      end
      local lease, head, body = element.lease, nil, nil
      if lease or is_barrier_element(element) then head, body = whole_element(element, texts[2 * i - 1], texts[2 * i], lease) end
      if head then
        out[#out + 1], out[#out + 2] = head, body
        bytes = bytes + #head + #body
      elseif lease then
        settle_leased(load_queue(element.queue), V.missing, {element.ref}, {parse_lease(lease)}, freed, '')
      end
    end
  end
  return out, bytes >= V.bytes
end

-- What nobody picked up counts as never delivered; a bounded part of it a call, of `number` elements at most. Returns the queues that got
-- something, and how many elements were looked at.
-- keep: tells of an element that it stays, at the inbox's end, behind those that stayed before; nil: none does.
local function give_back_inbox(id, now, freed, number, keep)
  local groups, queues, kept = {}, {}, {}
  local texts = number > 0 and call('LPOP', K.inbox(id), 2 * math.min(number, V.returned)) or {}
  for i = 1, #texts, 2 do
    local element = parse_element_head(texts[i])
    if keep and keep(element) then
      kept[#kept + 1], kept[#kept + 2] = texts[i], texts[i + 1]
    elseif not is_barrier_element(element) then
      local group = groups[element.queue] or {refs = {}, tokens = {}}
      groups[element.queue] = group
      group.refs[#group.refs + 1] = element.ref
      group.tokens[#group.tokens + 1] = element.token
    end
  end
  if #kept > 0 then call('RPUSH', K.inbox(id), unpack(kept)) end
  for name, group in pairs(groups) do
    local queue = load_queue(name)
    if queue then
      settle_messages(queue, now, V.given_back, 0, group.refs, group.tokens, id, freed)
      queues[#queues + 1] = name
    end
  end
  return queues, #texts / 2
end
