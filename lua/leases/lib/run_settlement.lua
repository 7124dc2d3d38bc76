--- run_settlement: acknowledging what was leased in runs, without spelling it out.
--- @include lease_runs, settlement, journal

-- Acknowledges what is leased from one message of a run to another, of which some are not; those go to `others`.
local function acknowledge_each(run, first, last, texts, others)
  local held = 0
  for i = first, last do
    if is_in_run(run, i) then
      held, texts[#texts + 1] = held + 1, ref_in_run(run, i)
    else
      others.refs[#others.refs + 1], others.tokens[#others.tokens + 1] = ref_in_run(run, i), string.format('%d', run.token + i - 1)
    end
  end
  return held
end

-- Acknowledges parts of a run, from which to which of its messages, '' for all. Returns how many were leased in it.
local function acknowledge_parts(run, parts, texts, others)
  if parts == '' and not string.find(run.mask, '1', 1, true) then
    run.mask, texts[#texts + 1] = string.rep('1', run.count), text_of_refs(run, 1, run.count)
    return run.count
  end
  if parts == '' then parts = '1 ' .. run.count end
  local mask, pieces, done, held, find, sub = run.mask, {}, 0, 0, string.find, string.sub
  local settled = find(mask, '1', 1, true)
  for from, to in string.gmatch(parts, '(%d+) (%d+)') do
    local first, last = math.max(tonumber(from), 1), math.min(tonumber(to), run.count)
    if first <= done then
      -- They are not in order: what is done of them counts for these.
      mask, pieces, done = table.concat(pieces) .. sub(mask, done + 1), {}, 0
      run.mask, settled = mask, 1
    end
    if first <= last then
      if settled and settled < first then settled = find(mask, '1', first, true) end
      if settled and settled <= last then
        held = held + acknowledge_each(run, first, last, texts, others)
      else
        held, texts[#texts + 1] = held + last - first + 1, text_of_refs(run, first, last)
      end
      local number = #pieces
      pieces[number + 1], pieces[number + 2] = sub(mask, done + 1, first - 1), string.rep('1', last - first + 1)
      done = last
    end
  end
  pieces[#pieces + 1] = sub(mask, done + 1)
  run.mask = table.concat(pieces)
  return held
end

-- texts: of each run that `by` was given ref and token of its first message, then from which to which of its messages, counted from 1: as
-- many pairs as there are; none: all. Returns {ref, code, ...} of those refused; where nothing of a run is known any more,
-- its token and V.run_over: they are to be named one by one. All that is refused is found before anything is written, and all runs have one
-- entry of the journal.
local function acknowledge_in_runs(queue, now, texts, by, freed)
  local names, tokens, rests = {}, {}, {}
  for i, text in ipairs(texts) do
    local order, topic = nil, nil
    order, topic, tokens[i], rests[i] = string.match(text, '^(%l%d+%l%d+)/(%S+) (%d+)(.*)$')
    names[i] = topic .. ' ' .. order .. ' ' .. tokens[i]
  end
  local refused, named, parts, acknowledged, others, held = {}, {}, {}, {}, {refs = {}, tokens = {}}, 0
  for i, run in ipairs(named_runs(queue, names)) do
    if run and run.holder == by then
      named[#named + 1], parts[#parts + 1] = run, rests[i]
    else
      refused[#refused + 1], refused[#refused + 2] = tokens[i], V.run_over
    end
  end
  load_refs_of_runs(queue.name, named)
  for i, run in ipairs(named) do
    held = held + acknowledge_parts(run, parts[i], acknowledged, others)
  end
  if held > 0 then
    save_runs(queue, named)
    write_acknowledged(queue, table.concat(acknowledged, ' '), held, by)
    count_in_runs(queue, -held)
    freed[by] = (freed[by] or 0) + held
  end
  if not others.refs[1] then return refused end
  queue.is_bare = nil
  for _, text in ipairs(settle_messages(queue, now, V.acknowledged, 0, others.refs, others.tokens, by, freed)) do
    refused[#refused + 1] = text
  end
  return refused
end
