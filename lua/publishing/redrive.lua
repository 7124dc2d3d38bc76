--- redrive: put dead letters back: record their messages for one queue alone, and settle the letters.
--- ARGV now, queue_name, topic, target, by, letters...
--- FAIL UNKNOWN_QUEUE, UNKNOWN_TOPIC
--- GIVES {number put back, ref, code, ...} with the letters that were refused; the others are done
--- @include clock, fail, entry_ids, fan_out, dispatch, unleased_settlement
-- letters: of each its ref in `queue_name`, and body, headers and published group of the message for `target`. A letter that
-- somebody holds stays. Call it late or twice: what is settled is not put back again. A full server refuses it: it publishes.
local ms = clock_ms(now)
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
if not load_queue(target) then fail(E.UNKNOWN_QUEUE, {queue = target}) end
if call('HEXISTS', K.cursors(target), topic) == 0 then fail(E.UNKNOWN_TOPIC, {name = topic, queue = target}) end

local refs, places, found, reply = {}, {}, {}, {0}
for i = letters_from, #ARGV, 4 do
  local ref = ARGV[i]
  local code, where = find_unleased(queue, ref, '', V.acknowledged)
  if where == 'leased' then code = E.NOT_LEASE_HOLDER end
  if found[ref] then code = E.ALREADY_ACKED end
  if code then
    reply[#reply + 1] = ref
    reply[#reply + 1] = code
  else
    refs[#refs + 1], places[#places + 1], found[ref] = ref, i, where
  end
end
if #refs == 0 then return reply end

local function add(run, id, n)
  local at = places[n]
  local entry = {F.body, ARGV[at + 1], F.addressed, target}
  if ARGV[at + 2] ~= '' then entry[5], entry[6] = F.headers, ARGV[at + 2] end
  if ARGV[at + 3] ~= '' then entry[#entry + 1], entry[#entry + 2] = F.in_group, ARGV[at + 3] end
  return run('XADD', K.log(topic), id, unpack(entry))
end

local first = record_entries(K.log(topic), ms, 1, #refs, add)
settle_unleased(queue, V.acknowledged, V.redriven, refs, found, by)
serve_queues(call('HGET', K.routes(), topic), topic, string.match(first, '^%d+'), ms, #refs, dispatch_or_defer)
dispatch_or_defer(queue_name, ms, V.batch)
reply[1] = #refs
return reply
