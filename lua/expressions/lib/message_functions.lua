--- message_functions: functions that tell something of the message.
--- @include document, source, incarnations, arithmetic

local function message_functions()
  local M = {}

  local function exact_of(d, whole)
    return d.exact and d.exact.of(whole) or whole
  end

  local function field_of(d, name)
    if not d.body then return nil end
    for i = 1, #d.fields, 2 do
      if d.fields[i] == name then return d.fields[i + 1] end
    end
  end

  local function filled(text)
    return text ~= '' and text or nil
  end

  function M.TRUE_VALUE() return true end
  function M.FALSE_VALUE() return false end
  function M.NAN_VALUE() return 0 / 0 end
  function M.MESSAGE_SIZE(d) return d.body and exact_of(d, #d.body) end
  function M.TOPIC_NAME(d) return filled(d.topic) end
  function M.BOOKMARK(d)
    return d.topic .. '~' .. (source_of(d.fields) or (origin_at(d.id) or '') .. '~' .. d.id)
  end
  function M.CLIENT_NAME(d) return filled(field_of(d, F.publisher)) end
  function M.AMPS_INSTANCE_NAME(d) return filled(names_of_instance().name or '') end
  function M.LEASE_COUNT(d) return exact_of(d, tonumber(d.deliveries)) end
  function M.UNIX_TIMESTAMP(d) return exact_of(d, math.floor(d.now / 1000)) end
  function M.LAST_UPDATED(d)
    return spelled_number(d, '0' .. string.sub(string.match(d.id, '^%d+'), 1, -4))
  end
  function M.CORRELATION_ID(d)
    if d.correlation_id == nil then
      local headers = field_of(d, F.headers)
      local names, fine = decode_body(headers or '')
      local id = fine and type(names) == 'table' and names.correlation_id
      d.correlation_id = type(id) == 'string' and id or ''
    end
    return filled(d.correlation_id)
  end

  return M
end
