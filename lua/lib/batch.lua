--- batch: variadic commands over lists of any length; unpack fails at 8,000 values.
local function call_in_batches(command, key, values)
  for first = 1, #values, 1000 do
    call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end
