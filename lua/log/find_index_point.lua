--- find_index_point: the last point of a log's index at an ID or before it.
--- ARGV topic, id
--- GIVES {its ID, or 0-0 before the first one; how many entries were added to the log up to it}
--- FLAGS no-writes, allow-oom
--- @include fail, log_index
local index = K.index(topic)
local number = points_up_to(index, id)
if number > 0 then return {point_at(index, number - 1)} end
return {'0-0', score_before(K.log(topic), log_facts(K.log(topic)))}
