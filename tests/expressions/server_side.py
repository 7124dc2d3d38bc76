"""Expressions as the server's scripts evaluate them, beside what Python says, many in a call."""

from __future__ import annotations

from dataclasses import dataclass, field

from ampsq.base.message_types import JSON, MessageType
from ampsq.expressions import Document, Expression, parse
from ampsq.expressions.budget import OutOfSteps
from ampsq.expressions.check import checked
from ampsq.expressions.evaluate import Evaluation, compile_tree
from ampsq.expressions.grammar import parse_nodes
from ampsq.protocol import schema
from ampsq.protocol.entries import read_entry
from ampsq.protocol.scripts import compose_text

#: What is known of a message besides its body, unless a case says otherwise.
KNOWN = {"topic": "", "stream_id": "0-0", "origin": "o.1", "instance": "o", "deliveries": 0, "now": 1_700_000_000_999}

#: Bytes of bodies from which on a call takes no further case; servers refuse others while a script takes long.
_CALL = 500_000

_DRIVER = """
--- evaluate_cases: what expressions say of documents: value, matching, score and prefix, work, size, steps, quick
--- ARGV cases...
--- FAIL FORMAT_MISMATCH
--- GIVES one list a case
--- @include fail, expression
-- Whole numbers are evaluated exactly, since integers and floats are told apart.
local function expression_value(compiled, d)
  local value = evaluate(compiled, d, as_value)
  local kind = type(value)
  if kind == 'number' and value % 1 ~= 0 or kind == 'table' and value.hi or kind ~= 'number' and kind ~= 'table' then
    return value
  end
  return evaluate(compiled, d, as_value, exact_numbers())
end

-- The steps that the last evaluation left; -1 where it had too few.
local function steps_left()
  return math.max(evaluation_steps.left or 0, -1)
end

-- A value as text.
local function describe_value(value)
  local kind = type(value)
  if kind == 'nil' then return 'null' end
  if kind == 'boolean' then return value and 'i:1' or 'i:0' end
  if kind == 'string' then return 's:' .. value end
  if kind == 'number' then return value == value and string.format('d:%.17g', value) or 'd:nan' end
  if value.hi then return 'i:' .. exact_numbers().text(value) end
  local parts = {}
  for i = 1, #value do parts[i] = describe_value(value[i]) end
  return '[' .. table.concat(parts, ',') .. ']'
end

-- Whether what the body holds alone tells whether it matches; it is judged so as by the whole document.
local function is_quick(compiled, d, matches, score, prefix)
  local root = not d.format and d.body and decode_bodies({d.body, ''})[1]
  if not root then return 0 end
  if d.root == false then error('decoded beside others, it is JSON: ' .. d.body) end
  if not compiled.quick then return 0 end
  local quickly, place = quick_match(compiled.quick(root)), quick_score(compiled.quick(root))
  if quickly ~= nil and quickly ~= matches then error('judged quickly as ' .. tostring(quickly) .. ': ' .. d.body) end
  if place and (place ~= score or prefix ~= '') then error('its place, quickly, is ' .. place .. ': ' .. d.body) end
  return quickly ~= nil and 1 or 0
end

local out = {}
local i = cases_from
while i <= #ARGV do
  local compiled, fields = compile_expression(ARGV[i]), {}
  for k = 1, tonumber(ARGV[i + 3]) do fields[k] = ARGV[i + 6 + k] end
  local document = open_document(ARGV[i + 1], ARGV[i + 2], fields, tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]))
  if ARGV[i + 6] ~= '' then document.format = ARGV[i + 6] end
  local matches = expression_matches(compiled, document)
  local work = evaluation_work(document)
  local score, prefix = expression_priority(compiled, document)
  local value = describe_value(expression_value(compiled, document))
  out[#out + 1] = {value, matches and 1 or 0, string.format('%.17g', score), prefix, work, document_size(document),
    steps_left(), is_quick(compiled, document, matches, score, prefix)}
  i = i + 7 + #fields
end
return out
"""


@dataclass(frozen=True)
class Case:
    """An expression's text, and what it is evaluated on; `body` is None for an entry of somebody else."""

    text: str
    body: bytes | None
    use: str = "query"
    fields: dict[bytes, bytes] = field(default_factory=dict)
    known: dict = field(default_factory=lambda: KNOWN)
    fold: bool = True
    message_type: MessageType = JSON

    @property
    def expression(self):
        if self.fold:
            return parse(self.text, self.use)
        return Expression.of_tree(self.text, checked(parse_nodes(self.text), self.text, self.use, fold=False))

    @property
    def document(self):
        fields, source = read_entry([text for pair in self.fields.items() for text in pair])
        return Document(self.body, fields=fields, source=source, message_type=self.message_type, **self.known)

    @property
    def arguments(self):
        """Return the script's arguments for it."""
        body = [] if self.body is None else [schema.FIELDS["body"].encode(), self.body]
        pairs = [text for pair in self.fields.items() for text in pair]
        known = self.known
        return [
            *(self.expression.json, known["topic"], known["stream_id"], len(body + pairs)),
            *(known["deliveries"], known["now"], self.message_type.word, *body, *pairs),
        ]

    @property
    def said(self):
        """Return Python's result, as the script gives it: value, whether it matches, score and prefix."""
        expression, document = self.expression, self.document
        value, priority = expression.value(document), expression.priority(document)
        return [described(value), expression.matches(document), *place(priority)]

    @property
    def steps_left(self):
        """The steps that an evaluation in Python leaves; -1 where it has too few, or builds too long a string."""
        at = Evaluation(self.document)
        try:
            compile_tree(self.expression.tree)(at)
        except OutOfSteps:
            return -1
        return at.left


class ServerSide:
    """Evaluates cases on a server, many in a call."""

    def __init__(self, client):
        self.client = client
        self.sha = client.script_load(compose_text("evaluate_cases", _DRIVER).source)

    def evaluate(self, cases):
        """Value, whether it matches, score, prefix, work, size, steps left, whether quick, of each; of one instance."""
        instance, origin = cases[0].known["instance"], cases[0].known["origin"]
        assert all(case.known["instance"] == instance for case in cases)
        fields = {"format": str(schema.FORMAT), "name": instance, "origin": origin}
        instance_key = schema.key(instance, "instance")
        self.client.hset(instance_key, mapping={schema.FIELDS[name]: value for name, value in fields.items()})
        found, arguments, size = [], [], 0
        for place, case in enumerate(cases, 1):
            arguments += case.arguments
            size += len(case.body or b"")
            if size > _CALL or place == len(cases):
                found += self.client.evalsha(self.sha, 1, "{" + instance + "}", *arguments)
                arguments, size = [], 0
        return found


def described(value):
    """A value of Python's evaluator as Lua's `describe_value` writes it."""
    if value is None:
        return b"null"
    if isinstance(value, int):
        return b"i:%d" % value
    if isinstance(value, float):
        return f"d:{value:.17g}".encode()
    if isinstance(value, bytes):
        return b"s:" + value
    return b"[" + b",".join(map(described, value)) + b"]"


def place(priority):
    """The score and prefix of a priority."""
    if priority is None:
        return [b"1", b""]
    if priority < 2**53:
        return [b"%d" % -priority, b""]
    low = priority % 2048
    return [f"{-float(priority - low):.17g}".encode(), b"#%03x" % (2047 - low)]
