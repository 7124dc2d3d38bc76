--- verdict: what is wrong with one message: its state according to journal and log, and where it is. One word, '' if all is well.
--- @include message_places, entry_belonging, journal_tail

-- An entry of a log; its bytes are work.
local function entry_read(look, topic, id)
  local entry = call('XRANGE', K.log(topic), id, id)[1]
  for k = 2, entry and #entry[2] or 0, 2 do look.plan.spent.work = look.plan.spent.work + #entry[2][k] / 20000 end
  return entry
end

-- What the journal does not settle and no structure has.
local function verdict_of_absent(look, ref, topic, id, noted, read)
  local entry = entry_read(look, topic, id)
  if not entry then return noted and read and 'ahead_left' or '' end
  look.fields = entry[2]
  -- What the queue's filter refused beyond its cursor is noted there, too.
  if noted and not read then return belongs_to_queue(look.queue, ref, entry[2], look.ms) and 'ahead_unsettled' or '' end
  if read and belongs_to_queue(look.queue, ref, entry[2], look.ms) then return 'lost' end
  return noted and read and 'ahead_left' or ''
end

-- Whether a message stands on the wrong side: with what is owned elsewhere, or not. A barrier goes out from each instance; what
-- is leased stays so, whoever owns it.
local function verdict_of_side(look, ref, live, fields)
  if not look.queue.owner or live == 'l' then return '' end
  local is_elsewhere, plan = is_remote(look.queue, ref, fields), look.plan
  if live == 'o' then return is_elsewhere and '' or 'remote_but_own' end
  if not is_elsewhere then return '' end
  if plan.trees.barrier and judge(plan, 'barrier', document_of(plan, ref, fields, 0, look.ms)) then return '' end
  return 'own_but_remote'
end

local function verdict_of_live(look, ref, topic, id, live, settled)
  local once = look.queue.once and string.sub(live, 1, 1) == 'l'
  if #live > 1 then return 'in_two_places' end
  -- At most once a lease only fills a backlog: the message is settled, and its log may be trimmed.
  if once then return settled and '' or 'unjournaled' end
  local entry = entry_read(look, topic, id)
  if not entry then return settled and 'settled_but_live' or 'unrecorded' end
  look.fields = entry[2]
  return settled and 'settled_but_live' or verdict_of_side(look, ref, live, entry[2])
end

-- At most once a message may be given back, until its log is trimmed.
local function verdict_of_owner(look, ref, topic, id, live, settled)
  if not look.queue.owner or live ~= '' or call('HEXISTS', K.owners(look.queue.name), ref) == 0 then return '' end
  local is_over = settled and not look.queue.once or not entry_read(look, topic, id)
  return is_over and 'owner_left' or ''
end

-- letters: as `places_of` gives them. settled: whether the journal says so.
local function verdict_of(look, ref, letters, settled)
  local topic, id = parse_ref(ref)
  local cursor = topic and read_up_to(look.queue, look.cursors, topic)
  if not cursor then return '' end
  local read, noted = order_of(id) <= cursor, string.sub(letters, -1) == 'a'
  local live = noted and string.sub(letters, 1, -2) or letters
  local name = ''
  if live ~= '' then name = verdict_of_live(look, ref, topic, id, live, settled) end
  if name ~= '' then return name end
  if not read and not noted and (live ~= '' or settled) then
    if live ~= '' then return 'unread_but_live' end
    return entry_read(look, topic, id) and 'settled_but_waiting' or ''
  end
  if live == '' and not settled then name = verdict_of_absent(look, ref, topic, id, noted, read) end
  if name == '' and noted and read then name = 'ahead_left' end
  return name ~= '' and name or verdict_of_owner(look, ref, topic, id, live, settled)
end

-- pairs of ref and how much it is settled up to `after`, in ARGV from an index on. Calls visit(ref, verdict, letters, settled)
-- for each until the work is done; gives how many were looked at and the journal's last ID, or nil when the journal is too
-- far ahead of `after`.
local function judge_refs(look, after, from, visit)
  local tail, last = read_journal_tail(look.queue.name, after)
  if not tail then return nil end
  local refs, plan = {}, load_plan(look.queue)
  look.plan = plan
  for i = from, #ARGV, 2 do refs[#refs + 1] = ARGV[i] end
  local letters, looked = places_of(look.queue, refs), 0
  for i, ref in ipairs(refs) do
    local settled = ARGV[from + 2 * i - 1] + (tail[ref] or 0) > 0
    visit(ref, verdict_of(look, ref, letters[i], settled), letters[i], settled)
    looked, plan.spent.work = looked + 1, plan.spent.work + 0.5
    if plan.spent.work >= V.sort_work then break end
  end
  return looked, last
end
