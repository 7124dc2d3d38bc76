--- settle: acknowledge, cancel, expire, extend or give back messages of one queue.
--- ARGV now, verb, period, by, group...
--- FAIL UNKNOWN_QUEUE
--- GIVES {ref, code, ...} of the items that were refused; the others are done
--- FLAGS allow-oom
--- @include clock, fail, settlement_groups, settlement, dispatch, run_settlement, open_run_settlement
-- group: as settlement_groups has it, one of a run to be acknowledged; an empty token means whoever holds the lease. Behind it may stand why,
-- as whoever settles them says; of an extension how far it is, `<0 to 1> <text>`. Call it late or twice: the token decides.
if verb == V.acknowledged and acknowledge_in_open_run(group_from, by) then return {} end
local ms = clock_ms(now)
local queue, refs, tokens, after, run = read_group(group_from)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = ARGV[group_from]}) end
local freed = {}
local refused = run and acknowledge_in_runs(queue, ms, {run}, by, freed)
  or settle_messages(queue, ms, verb, tonumber(period), refs, tokens, by, freed, ARGV[after])
free_room(freed, ms, queue.name)
dispatch_or_defer(queue.name, ms, V.batch)
save_queue(queue)
return refused
