--- marked_text: texts in a document that has its numbers as texts.

-- Of a text that begins with the sign of a number that is text, or of a name, what stands for it there.
local function marked_text(text)
  return string.byte(text, 1) == 1 and '\1' .. text or text
end
