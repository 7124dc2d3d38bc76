--- timetable: what is due when, and waking a coordinator that rests until something happens.
--- @include batch, clock
-- `resting.mode` is the instance's field `resting`, read with its format before anything else: nil while no coordinator
-- rests; 1: it is to be woken for what is due soon and for what it must do at once; 2: for news in logs and journals, too; 3 and 4: as 1 and 2,
-- and it rests long: it looks only each twenty seconds, so that what is due before then wakes it, too.
local resting = {}

-- what: which duties have something to do. The first call to wake it takes the field away: until the coordinator rests again, and
-- looks, no other call sends anything. Users whose rules an older release made may not send: the coordinator looks each second, too.
local function wake_coordinator(what)
  if not resting.mode or resting[what] then return end
  resting[what] = true
  if resting.may_wake == nil then
    resting.may_wake = redis.acl_check_cmd('SPUBLISH', P .. V.wake, '')
    if resting.may_wake then call('HDEL', K.instance(), F.resting) end
  end
  if resting.may_wake then call('SPUBLISH', P .. V.wake, what) end
end

-- For what actions and views read.
local function wake_followers()
  if resting.mode == '2' or resting.mode == '4' then wake_coordinator('news') end
end

-- What is due later than this, the coordinator's next look finds in time.
local function wake_for(at)
  if not resting.mode then return end
  local horizon = resting.mode >= '3' and V.long_rest_horizon or V.rest_horizon
  if at < (clock_read.ms or clock_ms('')) + horizon then wake_coordinator('due') end
end

-- at: ms. option: of ZADD, or nil.
local function add_due(at, member, option)
  if option then call('ZADD', K.due(), option, at, member) else call('ZADD', K.due(), at, member) end
  wake_for(tonumber(at))
end

-- items: ms and member, in turn.
local function add_all_due(items)
  call_in_batches('ZADD', K.due(), items)
  local first = math.huge
  for i = 1, #items, 2 do first = math.min(first, tonumber(items[i])) end
  wake_for(first)
end
