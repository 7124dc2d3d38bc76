--- batch_return: the messages of a group that are leased in one batch come back together: from the first one that comes back, all behind it.
--- @include leases, group_state()
-- Included as `batch_return()`. Its holder handles a batch in its order. So only the first message of it that is leased was begun, and what
-- comes back counts for that one alone; those behind it were given back by nobody's choice.

-- group -> its batch: refs, those that are leased, in their order; place: the place of each of all in the batch; leases: ref -> lease.
local function leased_batches(queue, names)
  local texts, found = call('HMGET', K.batches(queue.name), unpack(names)), {}
  for i, name in ipairs(names) do
    if texts[i] then
      local batch, all = {refs = {}, place = {}, leases = {}}, {}
      local first, last, refs = string.match(texts[i], '^(%d+) (%d+) (.*)$')
      for ref in string.gmatch(refs, '%S+') do
        all[#all + 1], batch.place[ref] = ref, #all + 1
      end
      for k, value in ipairs(call('HMGET', K.leases(queue.name), unpack(all))) do
        local lease = value and parse_lease(value)
        local token = lease and lease.group == name and tonumber(lease.token)
        -- By another definition it may be leased anew, by itself.
        if token and token >= tonumber(first) and token <= tonumber(last) then
          batch.refs[#batch.refs + 1], batch.leases[all[k]] = all[k], lease
        end
      end
      found[name] = batch
    end
  end
  return found
end

local function groups_of_leases(leases)
  local names, seen = {}, {}
  for _, lease in ipairs(leases) do
    if lease.group and not seen[lease.group] then seen[lease.group], names[#names + 1] = true, lease.group end
  end
  return names
end

-- Moves what stands behind a place of a batch to a list.
local function add_behind(batch, place, list)
  for _, ref in ipairs(batch.refs) do
    if batch.place[ref] > place then
      list.refs[#list.refs + 1], list.leases[#list.leases + 1] = ref, batch.leases[ref]
    end
  end
end

-- Of leases that come back: those that count as their cause says, and those that come back since they are in a batch with them,
-- each with refs and leases. What has ended in this call before is left out.
local function sort_by_batches(queue, refs, leases)
  local counted, behind, first = {refs = {}, leases = {}}, {refs = {}, leases = {}}, {}
  local names = groups_of_leases(leases)
  local batches, values = names[1] and leased_batches(queue, names) or {}, lease_values(queue, refs)
  for i, ref in ipairs(refs) do
    local batch = leases[i].group and batches[leases[i].group]
    if values[i] and string.match(values[i], '^%d+') == leases[i].token then
      if batch and batch.leases[ref] then
        first[leases[i].group] = math.min(first[leases[i].group] or math.huge, batch.place[ref])
      else
        counted.refs[#counted.refs + 1], counted.leases[#counted.leases + 1] = ref, leases[i]
      end
    end
  end
  for name, place in pairs(first) do
    local batch = batches[name]
    local begun = batch.refs[1]
    if batch.place[begun] == place then
      counted.refs[#counted.refs + 1], counted.leases[#counted.leases + 1] = begun, batch.leases[begun]
      add_behind(batch, place, behind)
    else
      add_behind(batch, place - 1, behind)
    end
  end
  return counted, behind
end

-- Messages were given up: what is leased behind them in their batches.
local function leased_behind(queue, refs, leases)
  local names, behind, first = groups_of_leases(leases), {refs = {}, leases = {}}, {}
  local batches = names[1] and leased_batches(queue, names) or {}
  for i, ref in ipairs(refs) do
    local name = leases[i].group
    local place = name and batches[name] and batches[name].place[ref]
    if place then first[name] = math.min(first[name] or math.huge, place) end
  end
  for name, place in pairs(first) do add_behind(batches[name], place, behind) end
  return behind
end
