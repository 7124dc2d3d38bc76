--- run_settlement: acknowledging what was leased in runs, without spelling it out.
--- @include lease_runs, settlement, journal

-- Acknowledges from one message of a run to another; those of them that are not leased there any more go to `others`.
local function acknowledge_part(run, first, last, texts, others)
  local mask, held = run.mask, last - first + 1
  if not string.find(string.sub(mask, first, last), '1', 1, true) then
    texts[#texts + 1] = text_of_refs(run, first, last)
  else
    for i = first, last do
      if is_in_run(run, i) then
        texts[#texts + 1] = ref_in_run(run, i)
      else
        held = held - 1
        others.refs[#others.refs + 1], others.tokens[#others.tokens + 1] = ref_in_run(run, i), string.format('%.0f', run.token + i - 1)
      end
    end
  end
  run.mask = string.sub(mask, 1, first - 1) .. string.rep('1', last - first + 1) .. string.sub(mask, last + 1)
  return held
end

-- text: ref and token of the first message of a run that `by` was given, then from which to which of its messages, counted from 1: as
-- many pairs as there are; none: all. Returns {ref, code, ...} of those refused; where nothing of the run is known any more,
-- {its token, V.run_over}: they are to be named one by one.
local function acknowledge_in_run(queue, now, text, by, freed)
  local order, topic, token, parts = string.match(text, '^(%l%d+%l%d+)/(%S+) (%d+)(.*)$')
  local run = named_run(queue, topic .. ' ' .. order .. ' ' .. token)
  if not run or run.holder ~= by then return {token, V.run_over} end
  load_run_refs(queue.name, run)
  local texts, others, held = {}, {refs = {}, tokens = {}}, 0
  if parts == '' then parts = '1 ' .. run.count end
  for first, last in string.gmatch(parts, '(%d+) (%d+)') do
    held = held + acknowledge_part(run, math.max(tonumber(first), 1), math.min(tonumber(last), run.count), texts, others)
  end
  if held > 0 then
    save_run(queue, run)
    write_acknowledged(queue.name, table.concat(texts, ' '), held, by)
    count_in_runs(queue, -held)
    freed[by] = (freed[by] or 0) + held
  end
  return settle_messages(queue, now, V.acknowledged, 0, others.refs, others.tokens, by, freed)
end
