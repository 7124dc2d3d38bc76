--- settlement_groups: messages of several queues in ARGV: queue, number, that many refs, that many tokens.
-- Acknowledgements of what was leased in runs: queue, `run`, one text, see run_settlement.
--- @include queue
local function read_group(at)
  if ARGV[at + 1] == 'run' then return load_queue(ARGV[at]), {}, {}, at + 3, ARGV[at + 2] end
  local number = tonumber(ARGV[at + 1])
  local refs = {unpack(ARGV, at + 2, at + 1 + number)}
  local tokens = {unpack(ARGV, at + 2 + number, at + 1 + 2 * number)}
  return load_queue(ARGV[at]), refs, tokens, at + 2 + 2 * number
end
