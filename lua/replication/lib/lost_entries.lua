--- lost_entries: what a former incarnation of this instance had comes back from whoever has it.
--- @include copies, log_batch, incarnations
-- Several may have parts of it, under filters of their own: not how far it came counts, but what is here.

-- Which of a run's entries are not here; what was trimmed does not come back.
local function find_lost(run)
  local forgotten = call('HGET', K.retention(), 'forgotten ' .. run.topic .. '@' .. run.origin)
  local lost, last = {}, forgotten and order_of(forgotten) or ''
  for i = 0, run.count - 1 do
    local id = id_of_entry(run, i)
    local is_here = order_of(id) <= last or copy_of(run.topic, run.origin, id)
      or is_recorded_here(K.log(run.topic), run.origin, id)
    if not is_here then lost[#lost + 1] = i end
  end
  return lost
end
