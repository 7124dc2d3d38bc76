--- key_reading: the keys of messages that come with a call, which may cost about as much to read as one body may.
--- @include fail, records

-- work, and the number of messages, of all that this call has read.
local reading = {}

local function charge_reading(work)
  reading.work = (reading.work or 0) + work
end

-- Before the next message is read: so a call that has one alone is never refused. A large body may cost more than is left then.
local function check_reading(records, body)
  local most = #body > V.small_body and 0.75 * V.key_work or V.key_work
  if (reading.work or 0) > most then fail(E.TOO_MUCH_TO_READ, {topic = records.topic, read = reading.messages}) end
end

-- message: its number in the call. Called for each of them before anything is written.
local function read_message_key(records, body, message)
  check_reading(records, body)
  local key, lacking, unread, work = key_in(records, {F.body, body})
  if unread then fail(E.UNREAD_BODY, {topic = records.topic, message = message, beyond = unread, bytes = #body}) end
  if not key then fail(E.MISSING_KEY, {topic = records.topic, key = lacking, message = message}) end
  -- Bytes are copied, too, into the log and the record.
  charge_reading(work + #body / 8)
  reading.messages = (reading.messages or 0) + 1
  return key
end
