--- fail: leave the script with a stable code and JSON detail. Only before the first write: nothing is rolled back.
local function fail(code, detail)
  error({err = code .. ' ' .. cjson.encode(detail)})
end
