--- set_rank: places in a sorted set, as (score, member), for walks over sets that change meanwhile.

local function is_before(score, member, other_score, other_member)
  return score < other_score or score == other_score and member < other_member
end

-- The rank of the first entry after a place, whether or not somebody still stands there.
local function rank_after(key, score, member)
  local low = call('ZCOUNT', key, '-inf', string.format('(%.17g', score))
  local high = low + call('ZCOUNT', key, string.format('%.17g', score), string.format('%.17g', score))
  while low < high do
    local middle = math.floor((low + high) / 2)
    if member < call('ZRANGE', key, middle, middle)[1] then high = middle else low = middle + 1 end
  end
  return low
end
