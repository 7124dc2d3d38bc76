--- drop_before_start: take messages that lie before a queue's recovery point out of the queue, unless somebody holds them.
--- ARGV queue_name, refs...
--- FAIL UNKNOWN_QUEUE
--- GIVES how many left
--- FLAGS allow-oom
--- @include fail, remedies
local queue = load_queue(queue_name)
if not queue then fail(E.UNKNOWN_QUEUE, {queue = queue_name}) end
local refs, left = {unpack(ARGV, refs_from)}, {}
local letters, look = places_of(queue, refs), {queue = queue}
for i, ref in ipairs(refs) do
  local is_live = string.find(letters[i], '^[rshodc]') ~= nil
  if is_live and is_before_start(queue_name, parse_ref(ref)) then
    remove_from_places(look, ref, letters[i], 1)
    call('HDEL', K.attempts(queue_name), ref)
    left[#left + 1] = ref
  end
end
notify_watchers(queue, left)
return #left
