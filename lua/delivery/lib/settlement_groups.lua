--- settlement_groups: messages of several queues in ARGV: queue, number, that many refs, that many tokens.
--- @include queue
local function read_group(at)
  local number = tonumber(ARGV[at + 1])
  local refs = {unpack(ARGV, at + 2, at + 1 + number)}
  local tokens = {unpack(ARGV, at + 2 + number, at + 1 + 2 * number)}
  return load_queue(ARGV[at]), refs, tokens, at + 2 + 2 * number
end
