--- catch_up_records: let a topic's records follow its log: one bounded step.
--- ARGV topic
--- FAIL NO_RECORDS
--- GIVES {1 while there is more to read else 0, the last ID read}
--- FLAGS allow-oom
--- @include required_records
local records = open_records_or_fail(topic)
local ended = follow_log(records)
return {ended and 0 or 1, records.read_to}
