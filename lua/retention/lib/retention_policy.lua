--- retention_policy: which entries of a log a topic's retention gives up: those beyond its age, its size or its count.
--- @include ref

-- What has to go for the size, by the mean of an entry; the server measures a few nodes.
local function excess_entries(log, length, size, count)
  local excess = count ~= '' and length - count or 0
  local used = size ~= '' and length > 0 and call('MEMORY', 'USAGE', log) or 0
  if used > 0 and used > tonumber(size) then
    excess = math.max(excess, math.ceil((used - size) * length / used))
  end
  return excess
end

-- age, size, count: '' where the policy has none. passed: entries from the log's head to where the caller is.
local function open_policy(topic, age, size, count, passed, ms)
  local log = K.log(topic)
  local length = call('XLEN', log)
  return {until_ms = age ~= '' and ms - age or -1, excess = excess_entries(log, length, size, count), rank = passed,
    length = length}
end

-- Whether the next entry is given up; called for each in turn.
local function gives_up(policy, id)
  policy.rank = policy.rank + 1
  return policy.rank <= policy.excess or tonumber(string.match(id, '^%d+')) <= policy.until_ms
end

-- Nothing beyond this is given up, as an end for XRANGE.
local function policy_end(policy)
  if policy.excess > policy.rank then return '+' end
  return policy.until_ms >= 0 and string.format('%.0f-18446744073709551615', policy.until_ms) or '0-0'
end

-- The next entries of a log that the policy gives up, `most` at most, and as many as a call's bytes allow. after: an ID.
-- Returns their IDs, whether the walk met an end instead of a limit, and their fields.
local function entries_given_up(log, policy, after, last, most)
  local ids, all, bytes, step = {}, {}, 0, 8
  while #ids < most do
    local count = math.min(step, most - #ids)
    local entries = call('XRANGE', log, '(' .. after, last, 'COUNT', count)
    for _, entry in ipairs(entries) do
      if not gives_up(policy, entry[1]) then return ids, true, all end
      ids[#ids + 1], all[#all + 1], after = entry[1], entry[2], entry[1]
      for _, text in ipairs(entry[2]) do bytes = bytes + #text end
    end
    if #entries < count then return ids, true, all end
    if bytes >= V.bytes then break end
    step = math.max(2, math.min(V.batch, math.floor(V.bytes * #ids / (4 * math.max(bytes, 1)))))
  end
  return ids, false, all
end
