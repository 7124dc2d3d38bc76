--- required_records: the records of a topic that was named, and is refused where it keeps none.
--- @include fail, records

local function open_records_or_fail(topic)
  local records = open_records(topic)
  if not records then fail(E.NO_RECORDS, {topic = topic}) end
  return records
end
