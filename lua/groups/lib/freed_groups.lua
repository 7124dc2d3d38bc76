--- freed_groups: groups of which leases ended in this call: what may go of them next is given first, and only what is not given stands among what may go.
--- @include group_state
-- Groups of which leases ended in this call are saved at its end: mostly their next messages are given by it, too, and never stand among what
-- may go. Gives these messages, of which the caller keeps what it does not give (`keep_going`); other groups are saved, but for those of which
-- nothing waits where the oldest goes first: what is read for them may be given by this call.
local function take_freed(queue)
  local freed, others = {}, {}
  for name, state in pairs(queue.unsaved_groups or {}) do
    local is_idle = state.going == 0 and not state.before and state.held == 0 and (not queue.choice or state.turn)
    local allowed = is_idle and number_allowed(queue, state) or 0
    if allowed > 0 then
      local refs = refs_in_group(queue, name, 0, allowed)
      state.going, state.score = #refs, score_of(queue, state)
      for _, ref in ipairs(refs) do freed[#freed + 1] = {ref = ref, name = name, score = state.score, member = ref .. ' ' .. name, is_freed = true} end
    elseif queue.choice or state.waiting > 0 or state.going > 0 then
      others[name] = state
    end
  end
  save_groups(queue, others)
  return freed
end

-- Messages that `take_freed` gave stand among what may go from now on.
local function keep_going(queue, items)
  local places = {}
  for i, item in ipairs(items) do places[2 * i - 1], places[2 * i] = string.format('%.0f', item.score), item.member end
  call_in_batches('ZADD', K.going(queue.name), places)
end
