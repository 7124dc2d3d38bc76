--- log_batch: what a link sends of a log, in ARGV: entries of one origin that came the same way and have the same fields.
-- A run: topic, origin, filter, path, the ID behind which it begins, the one that it is complete up to, number of entries, number of fields, their names, then of each
-- entry its ID there and its values. Nothing is copied here: the values stay in ARGV.

-- The runs from an index of ARGV on: of each where its names and entries begin.
local function read_log_batch(at)
  local runs = {}
  while at <= #ARGV do
    local run = {
      topic = ARGV[at], origin = ARGV[at + 1], filter = ARGV[at + 2], path = ARGV[at + 3], start = ARGV[at + 4],
      upto = ARGV[at + 5], count = tonumber(ARGV[at + 6]), width = tonumber(ARGV[at + 7]), names = at + 8,
      first = at + 8 + ARGV[at + 7],
    }
    runs[#runs + 1] = run
    at = run.first + run.count * (run.width + 1)
  end
  return runs
end

-- The ID there of the entry number `i`, from 0.
local function id_of_entry(run, i)
  return ARGV[run.first + i * (run.width + 1)]
end

-- Its fields, and those that say where it came from; the same table for all entries of a run.
local function fields_of_entry(run, i)
  local fields, at = run.fields, run.first + i * (run.width + 1)
  if not fields then
    fields = {}
    for k = 1, run.width do fields[2 * k - 1] = ARGV[run.names + k - 1] end
    local n = 2 * run.width
    fields[n + 1], fields[n + 3], fields[n + 4] = F.source, F.path, run.path
    run.fields, run.prefix = fields, run.origin .. '~'
  end
  for k = 1, run.width do fields[2 * k] = ARGV[at + k] end
  fields[2 * run.width + 2] = run.prefix .. ARGV[at]
  return fields
end

-- The index of a named field in the values of each entry; nil without it.
local function place_of_field(run, name)
  for k = 1, run.width do
    if ARGV[run.names + k - 1] == name then return k end
  end
end
