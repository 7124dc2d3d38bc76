"""The scripts as the kit sends them: for a server that knows less of Lua, and with the time of a clock that is held.

A script with the time of a clock is given it as its last argument, takes that off before it does anything else, and has
it wherever it would ask the server for its own: for TIME, and for the ID of an entry that the server would number.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final, NamedTuple

__all__ = ["MEMORY_USAGE", "OWN_TIME", "ScriptText", "known_script", "script_text"]

#: What every composed script begins with, behind its line of flags.
_CALL: Final = b"local call = redis.call\n"
#: JSON as cjson of the servers reads and writes it; fakeredis's own reads every number and text through Python.
_JSON: Final = rb"""
local signs = {b = '\b', f = '\f', n = '\n', r = '\r', t = '\t', ['"'] = '"', ['\\'] = '\\', ['/'] = '/'}
local written = {['\b'] = '\\b', ['\t'] = '\\t', ['\n'] = '\\n', ['\f'] = '\\f', ['\r'] = '\\r', ['"'] = '\\"',
  ['\\'] = '\\\\', ['/'] = '\\/'}
local null = cjson.null
local function utf8(code)
  local char = string.char
  if code < 128 then return char(code) end
  local last = char(128 + code % 64)
  code = math.floor(code / 64)
  if code < 32 then return char(192 + code) .. last end
  last = char(128 + code % 64) .. last
  code = math.floor(code / 64)
  if code < 16 then return char(224 + code) .. last end
  return char(240 + math.floor(code / 64), 128 + code % 64) .. last
end
local function decode_to(text, most)
  local at, depth, value = 1, 0, nil
  local function next_sign()
    at = string.find(text, '[^ \t\r\n]', at) or #text + 1
    return string.sub(text, at, at)
  end
  local function check(found) if not found then error('no JSON at ' .. at) end return found end
  local function read_string()
    local parts = {}
    while true do
      local stop = check(string.find(text, '["\\]', at))
      parts[#parts + 1] = string.sub(text, at, stop - 1)
      at = stop + 2
      if string.sub(text, stop, stop) == '"' then
        at = stop + 1
        return table.concat(parts)
      end
      local letter = string.sub(text, stop + 1, stop + 1)
      if letter == 'u' then
        local code = tonumber(check(string.match(text, '^%x%x%x%x', at)), 16)
        at = at + 4
        if code >= 55296 and code < 57344 then
          check(code < 56320)
          local low = check(string.match(text, '^\\u([dD][c-fC-F]%x%x)', at))
          code, at = 65536 + (code - 55296) * 1024 + tonumber(low, 16) - 56320, at + 6
        end
        parts[#parts + 1] = utf8(code)
      else
        parts[#parts + 1] = check(signs[letter])
      end
    end
  end
  local function read_members(ending, add)
    depth, at = depth + 1, at + 1
    check(depth <= most)
    if next_sign() == ending then
      at = at + 1
    else
      repeat
        add()
        local sign = next_sign()
        check(sign == ending or sign == ',')
        at = at + 1
      until sign == ending
    end
    depth = depth - 1
  end
  value = function()
    local sign = next_sign()
    if sign == '"' then
      at = at + 1
      return read_string()
    elseif sign == '{' then
      local found = {}
      read_members('}', function()
        check(next_sign() == '"')
        at = at + 1
        local name = read_string()
        check(next_sign() == ':')
        at = at + 1
        found[name] = value()
      end)
      return found
    elseif sign == '[' then
      local found, number = {}, 0
      read_members(']', function()
        number = number + 1
        found[number] = value()
      end)
      return found
    end
    local word = string.match(text, '^%a+', at)
    if word then
      at = at + #word
      if word == 'null' then return null end
      check(word == 'true' or word == 'false')
      return word == 'true'
    end
    local digits = check(string.match(text, '^-?[%d.]+[eE]?[+-]?%d*', at))
    check(not string.find(digits, '^-?0%d'))
    at = at + #digits
    return check(tonumber(digits))
  end
  local found = value()
  check(next_sign() == '')
  return found
end
local encode
encode = function(value)
  if value == null then return 'null' end
  local kind = type(value)
  if kind == 'string' then
    return '"' .. string.gsub(value, '[%z\1-\31"\\/\127]', function(sign)
      return written[sign] or string.format('\\u%04x', string.byte(sign))
    end) .. '"'
  end
  if kind == 'number' then return string.format('%.14g', value) end
  if kind == 'boolean' then return tostring(value) end
  local parts, is_list = {}, #value > 0
  for name in pairs(value) do is_list = is_list and type(name) == 'number' end
  if is_list then
    for i = 1, #value do parts[i] = encode(value[i]) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for name, each in pairs(value) do parts[#parts + 1] = encode(tostring(name)) .. ':' .. encode(each) end
  return '{' .. table.concat(parts, ',') .. '}'
end
cjson.decode = function(text) return decode_to(text, 1000) end
cjson.encode = encode
cjson.new = function()
  local most = 1000
  return {
    decode_invalid_numbers = function() end,
    decode_max_depth = function(depth) most = depth end,
    decode = function(text) return decode_to(text, most) end,
  }
end
"""
#: What else fakeredis lacks. It has no users, so that nobody lacks a right. The hash spreads delays by chance, nothing
#: else, so that any even one does. A log's size is that of its fields.
_LACKING: Final = b"".join(
    (
        b"if not redis.acl_check_cmd then\n",
        _JSON,
        rb"""
local given = redis.call
redis.acl_check_cmd = function() return true end
redis.sha1hex = function(text)
  local hash = 5381
  for i = 1, #text do hash = (hash * 33 + string.byte(text, i)) % 4294967296 end
  for _ = 1, 4 do hash = (hash * 69069 + 12345) % 4294967296 end
  return string.format('%08x', hash) .. string.rep('0', 32)
end
redis.call = function(command, ...)
  if command == 'INFO' then return 'run_id:0' end
  if command ~= 'MEMORY' then return given(command, ...) end
  local _, log = ...
  local size = 0
  for _, entry in ipairs(given('XRANGE', log, '-', '+')) do
    for _, text in ipairs(entry[2]) do size = size + #text end
  end
  return size
end
end
""",
    )
)
#: Answers what MEMORY USAGE of a stream does.
MEMORY_USAGE: Final = _LACKING + b"return redis.call('MEMORY', 'USAGE', KEYS[1])"
#: An entry whose ID would not be the greatest of its stream is numbered by the server after all, as its clock may be
#: ahead of the one that is held. A failure names the line that has called, and not one of this; fakeredis names none,
#: and what its replies have as `err` is no text.
_WITH_TIME: Final = b"""\
local given = table.remove(ARGV)
local function is_error(reply) return type(reply) == 'table' and reply.err end
local function call(command, ...)
  if command == 'TIME' then return {string.sub(given, 1, -4), string.sub(given, -3) .. '000'} end
  local reply
  if command == 'XADD' then
    local words, at = {...}, 2
    if words[2] == 'MAXLEN' then at = words[3] == '~' and 5 or 4 end
    if words[at] == '*' then
      words[at] = given .. '-*'
      reply = redis.pcall(command, unpack(words))
    end
  end
  if reply == nil or is_error(reply) then reply = redis.pcall(command, ...) end
  if not is_error(reply) then return reply end
  if type(reply.err) ~= 'string' then return redis.call(command, ...) end
  local line
  for level = 3, 6 do
    local _, place = pcall(error, '', level)
    line = line or string.match(place, ':(%d+):')
  end
  error({err = reply.err .. ' script: held, on @user_script:' .. (line or '?') .. '.'}, 0)
end
"""
#: Answers what TIME does, with a time that is given.
OWN_TIME: Final = b"return {ARGV[1], ARGV[2]}"


#: How every composed script ends, and how it ends where a server takes no table as an error that is raised.
_END: Final = b"return main()\n"
_END_WITH_ERRORS: Final = b"""\
local fine, result = pcall(main)
if fine then return result end
if type(result) == 'table' then return {err = result.err} end
return {err = string.gsub(tostring(result), '%[string "[^"]*"%]:(%d+):', 'user_script:%1:')}
"""
#: SHA1 of each script that a client has sent -> its text.
_sent: dict[bytes, bytes] = {}
#: No script has it: a server answers that it does not know this one, so that the client sends the text.
_UNKNOWN: Final = b"0" * 40


class ScriptText(NamedTuple):
    """A script as it is sent.

    Attributes:
        source: its text.
        sha: SHA1 of it, as EVALSHA takes it.
        is_ours: whether it takes the time as its last argument, where it is to.
    """

    source: bytes
    sha: bytes
    is_ours: bool


def script_text(source: bytes, *, shebang: bool, with_time: bool) -> ScriptText:
    """Give a script as a server of the kit takes it; one that is not ours stays as it is.

    Args:
        source: as its client sends it.
        shebang: whether the server knows the line with the flags; one that does not lacks the rest of `_LACKING`, too.
        with_time: whether it is to take the time.
    """
    _sent.setdefault(_sha(source), source)
    return _changed(source, shebang, with_time)


def known_script(sha: bytes, *, shebang: bool, with_time: bool) -> ScriptText:
    """Give the script of that SHA1 in the same way; where nobody has sent it, one that the server does not know."""
    source = _sent.get(sha.lower())
    return ScriptText(b"", _UNKNOWN, is_ours=False) if source is None else _changed(source, shebang, with_time)


@cache
def _changed(source: bytes, shebang: bool, with_time: bool) -> ScriptText:  # noqa: FBT001  (a cache takes positions)
    flags, call, rest = source.partition(_CALL)
    is_ours = bool(call) and rest.endswith(_END) and flags.startswith(b"#!lua") and flags.count(b"\n") == 1
    if is_ours:
        if not shebang:
            rest = rest.removesuffix(_END) + _END_WITH_ERRORS
        # Each takes the one line of what it replaces, so that errors name the lines of the script as it was composed.
        before, call = flags if shebang else _one_line(_LACKING), _one_line(_WITH_TIME) if with_time else call
        source = b"".join((before, call, rest))
    return ScriptText(source, _sha(source), is_ours)


def _one_line(text: bytes) -> bytes:
    """Return the same Lua in one line; it has no comments, and no text goes over several lines."""
    return b" ".join(text.split(b"\n")) + b"\n"


def _sha(source: bytes) -> bytes:
    return hashlib.sha1(source).hexdigest().encode()  # noqa: S324  (Redis names scripts by SHA1)
