--- reading_budget: how much of bodies is read: each up to V.small_body bytes; beyond that up to its topic's limit, and within steps.
-- docs/decisions/0019; ampsq/expressions/reading.py says the same of the same bodies.

local body_limits = {}

-- Bytes of the largest body of a topic that is read: as its definition says, or the instance's. Only large bodies ask.
local function body_limit(topic)
  local limit = body_limits[topic]
  if limit then return limit end
  local definition = call('HGET', K.topics(), topic)
  limit = definition and cjson.decode(definition).expression_limit
  limit = limit or tonumber(call('HGET', K.instance(), F.expression_limit) or V.expression_limit)
  body_limits[topic] = limit
  return limit
end

-- How often a text has a sign; no more than one beyond `most` are counted. Finding one after the other costs by the
-- sign, where a pattern costs by the byte.
local function count_sign(text, sign, most)
  local count, at = 0, string.find(text, sign, 1, true)
  while at do
    count = count + 1
    if count > most then break end
    at = string.find(text, sign, at + 1, true)
  end
  return count
end

-- The same of all signs that JSON costs by, in strings or not.
local function count_signs(text, most)
  local count = 0
  for _, sign in ipairs({',', ':', '[', '{', '.'}) do
    count = count + count_sign(text, sign, most - count)
    if count > most then break end
  end
  return count
end

-- Whether a large body is read, `d.steps` being what is left of an evaluation's; else `d.unread` says what it went
-- beyond, `d.limit` being its topic's. Values of other types than JSON are counted when they are read.
local function admit_large_body(d)
  local size, limit = #d.body, body_limit(d.topic)
  d.doubles, d.limit = true, limit
  if size > limit then
    d.unread = 'limit'
    return false
  end
  local steps = math.floor(60000 * math.max(1, limit / V.expression_limit)) - math.floor(size / 32)
  if not d.format and steps >= 0 then
    local signs = count_signs(d.body, math.floor(steps / 2))
    d.work = d.work + 4 * signs
    steps = steps - 2 * signs
  end
  d.steps = steps
  if steps < 0 then d.unread = 'steps' end
  return steps >= 0
end

-- How many values of a body of another type than JSON may be read.
local function values_allowed(d)
  return math.floor((d.steps or 60000) / 6)
end

-- What reading so many values costs a large body.
local function spend_values(d, count)
  if d.steps then d.steps = math.max(d.steps - 6 * count, 0) end
end
