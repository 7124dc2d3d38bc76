--- record_walk: looking through a topic's records, by key or all of them, in steps that are bounded like a dispatch.
--- @include records, judging_plan

-- tree: of a filter, '' for all. Work counts as in sorted/lib/judging_plan.lua.
local function open_record_walk(records, tree, now)
  local compiled = tree ~= '' and expression_language().compile_expression(tree) or nil
  return {topic = records.topic, format = records.format, filter = compiled, now = now, work = 0, bytes = 0}
end

local function is_walk_over(walk)
  return walk.work >= V.sort_work or walk.bytes >= V.bytes / 2
end

-- Calls visit(key, id, fields) for a record that matches and is not over.
local function look_at_record(walk, key, text, visit)
  walk.work = walk.work + 0.2 + #text / 8000
  if is_record_over(text, walk.now) then return end
  local id, fields = read_record(text)
  if walk.filter then
    local document = expression_language().open_document(walk.topic, id, fields, 0, walk.now)
    document.format = walk.format
    local matches = expression_language().expression_matches(walk.filter, document)
    walk.work = walk.work + 0.8 + #text / 1500 + expression_language().evaluation_work(document) / 130
    if not matches then return end
  end
  walk.bytes = walk.bytes + #text
  visit(key, id, fields)
end

-- A scan cannot stop inside a page, so its pages are of few records where those are large. Gives the next cursor, '' at the end.
local function walk_records(walk, cursor, visit)
  local step, seen, size = 4, 0, 0
  if cursor == '' then cursor = '0' end
  repeat
    local scanned = call('HSCAN', K.records(walk.topic), cursor, 'COUNT', step)
    for i = 1, #scanned[2], 2 do
      size = size + #scanned[2][i + 1]
      look_at_record(walk, scanned[2][i], scanned[2][i + 1], visit)
    end
    cursor, seen = scanned[1], seen + #scanned[2] / 2
    step = math.max(2, math.min(64, math.floor(V.bytes * seen / (8 * math.max(size, 1)))))
  until cursor == '0' or is_walk_over(walk)
  return cursor == '0' and '' or cursor
end

-- The keys in ARGV from `first` on, the first `cursor` of which were looked at before.
local function walk_keys(walk, cursor, first, visit)
  local at = first + (tonumber(cursor) or 0)
  while at <= #ARGV and not is_walk_over(walk) do
    local text = call('HGET', K.records(walk.topic), ARGV[at])
    if text then look_at_record(walk, ARGV[at], text, visit) end
    walk.work, at = walk.work + 0.1, at + 1
  end
  return at <= #ARGV and string.format('%d', at - first) or ''
end
