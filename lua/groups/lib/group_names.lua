--- group_names: the group of a message: what its publisher says, else what the expression of its queue gives; and its weight.
--- @include judging_plan

-- What a publisher says in an entry of ours; nil: nothing.
local function published_group(fields)
  if fields[1] ~= F.body then return nil end
  for i = 3, #fields, 2 do
    if fields[i] == F.in_group and fields[i + 1] ~= '' then return fields[i + 1] end
  end
  return nil
end

-- What the expression gives. root: what the body holds, where that is known.
local function expressed_group(plan, ref, fields, now, root)
  local tree = compiled_tree(plan, 'group')
  if root and tree.quick then
    local name, is_sure = expression_language().text_quickly(tree, root)
    if is_sure then
      charge_quick_work(plan, 1, #fields[2], 1, tree.cost)
      return name
    end
  end
  local document = document_of(plan, ref, fields, 0, now, nil, nil, root)
  local name = expression_language().expression_text(tree, document)
  charge_work(plan, document, 1)
  return name
end

-- Whether bytes beyond ASCII are UTF-8: nothing is left of them without its sequences, the longest ones first.
local function is_utf8(text)
  text = string.gsub(text, '[\241-\243][\128-\191][\128-\191][\128-\191]', '.')
  text = string.gsub(text, '\240[\144-\191][\128-\191][\128-\191]', '.')
  text = string.gsub(text, '\244[\128-\143][\128-\191][\128-\191]', '.')
  text = string.gsub(text, '[\225-\236\238\239][\128-\191][\128-\191]', '.')
  text = string.gsub(text, '\224[\160-\191][\128-\191]', '.')
  text = string.gsub(text, '\237[\128-\159][\128-\191]', '.')
  text = string.gsub(text, '[\194-\223][\128-\191]', '.')
  return not string.find(text, '[\128-\255]')
end

-- Whether a text is a name as it stands. Names are parts of members, which a NUL ends, and people write them as UTF-8.
local function is_group_name(text)
  if #text > V.longest_group then return false end
  if not string.find(text, '[%z\128-\255]') then return true end
  return not string.find(text, '%z') and is_utf8(text)
end

-- '' of a message that is in no group. root: as of `expressed_group`. The work is counted.
local function group_name(plan, ref, fields, now, root)
  local name = #fields > 2 and published_group(fields)
  if not name and plan.trees.group then name = expressed_group(plan, ref, fields, now, root) end
  plan.spent.work = plan.spent.work + 0.3
  if not name then return '' end
  return is_group_name(name) and name or '#' .. redis.sha1hex(name)
end

-- The groups of messages that were read in one step: the decoded body alone gives the group of most, and the cost of all is counted once. roots: of
-- each what its body holds, where that is known.
local function group_names(plan, refs, all_fields, roots, now)
  local tree, names, number, size = plan.trees.group and refs[1] and compiled_tree(plan, 'group'), {}, 0, 0
  local quick = tree and tree.quick
  for i = 1, #refs do
    local fields, root, name = all_fields[i], roots[i], nil
    if quick and root and not fields[3] then
      local value = quick(root)
      if value == nil then
        name = ''
      elseif type(value) == 'string' and is_group_name(value) then
        name = value
      end
      if name then number, size = number + 1, size + #fields[2] end
    end
    names[i] = name or group_name(plan, refs[i], fields, now, root)
  end
  if number > 0 then
    charge_quick_work(plan, number, size, 1, tree.cost)
    plan.spent.work = plan.spent.work + 0.3 * number
  end
  return names
end

-- A whole number from 1 to V.most_weight; 1 of a message that says none.
local function group_weight(plan, ref, fields, now)
  local document = document_of(plan, ref, fields, 0, now)
  local score, prefix = expression_language().expression_priority(compiled_tree(plan, 'weight'), document)
  charge_work(plan, document, 1)
  return prefix == '' and score <= -1 and score >= -V.most_weight and -score or 1
end
