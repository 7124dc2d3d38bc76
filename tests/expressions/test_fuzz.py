"""Random expressions on random documents: Python and the server's scripts say the same."""

from __future__ import annotations

import os
import random
import re
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_side import KNOWN, Case

from ampsq.base.errors import ExpressionError

pytestmark = pytest.mark.slow

_EXAMPLES = int(os.environ.get("AMPSQ_EXAMPLES", "150"))
_PAIRS = 20
_NAMES = "abcde"
_KNOWN = {**KNOWN, "topic": "orders", "stream_id": "1700000000123-5", "deliveries": 3}
_META = {b"h": b'{"correlation_id":"c1"}', b"p": b"publisher", b"n": b"5"}

# fmt: off
_NUMBERS = [
    "0", "-0", "0.0", "-0.0", "1", "2", "3", "-7", "5", "10", "100", "1e3", "1E+2", "1.50", "2.0", "2.5", "-2.5", "0.5",
    "0.1", "0.30000000000000004", "0.49999999999999994", "9007199254740991", "9007199254740992", "9007199254740993",
    "-9007199254740993", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "9223372036854775807",
    "-9223372036854775809", "1e400", "-1e400", "1e-400", "123456789012345678", "1e20", "1.8446744073709552e19", "7",
    "4294967296", "4294967297", "1700000000", "1e15", "1e16", "123456.789e3", "-1.5", "255", "65",
    "99999999999999999999",
]
_STRINGS = [
    '""', '"abc"', '"ABC"', '"a"', '"b"', '"abcabc"', '" 12 "', '"12"', '"1e3"', '"0x10"', '"inf"', '"nan"', '"+5"',
    '"-.5"', '"5."', '"."', '"-"', '"1e"', '"0005"', '"9007199254740993"', '"18446744073709551616"', '"\\u0041b"',
    '"\\ud83d\\ude00"', '"\\"q\\\\"', '"x.y"', '"1. z"', '"é"', '"2023-02-28 11:12:13"', '"28 Feb 2023"', '"a\\tb"',
    '"\\u0000"', '"0"', '"0.0"', '"\\n7\\n"', '"hello world"', '"Hello"', '"n5"', '"s5"', '"\\u0001"', '"a/b"', '"1_0"',
    '"\\u0661"', '"1\\u00a0"', '"aXbXc"',
]
_BROKEN = [
    b'"', b"\\", b".", b"-", b"0", b",", b"\n", b"\x01", b"\xff", b"e", b"[", b"}", b" ", b"\x7f", b"+", b"\x00", b"1.",
    b"-.5", b"\\u", b"\xef\xbb\xbf", b"/**/", b"NaN", b"Infinity", b"\\ud800", b"\xed\xa0\x80", b"0x1", b"\x0c", b"\t",
    b"\xc2\xa0", b"\r",
]
_CONSTANTS = [
    "0", "1", "2", "3", "7", "10", "65", "1700000000", "9007199254740991", "9007199254740992", "9007199254740993",
    "18446744073709551615", "0.5", "2.0", ".25", "1e20", "1e300", "NULL", "''", "'a'", "'abc'", "'ABC'", "' 12 '",
    "'1e3'", "'0x10'", "'inf'", "'-.5'", "'9007199254740993'", r"'\xff'", r"'\x00'", "'é'", "'2023-02-28 11:12:13'",
    "'.'", "'Hello'", "'b'",
]
_PATTERNS = [
    "^a", "b+", "[0-9]+", "a.c", "^[A-Z]", "c$", r"\d", "(?i)abc", "x|y", "^$", r"\bb", "abc", "1", "(a|b)*c",
    ".{2,3}$",
]
_FORMS = [
    "%Y-%m-%d %H:%M:%S", "%F %T", "%d %b %Y", "%s", "%j %y", "%a %A %e %I %p %Z%z%%", "%q%", "%D %R", "%B %Y", "%H",
    "%",
]
_CALLS = {
    "CONCAT": (1, 3), "UPPER": (1, 1), "LOWER": (1, 1), "LENGTH": (1, 1), "REVERSE": (1, 1), "SUBSTR": (2, 3),
    "INSTR": (2, 2), "INSTR_I": (2, 2), "STREQUAL_I": (2, 2), "REPLACE": (3, 3), "ARRAY_TO_STRING": (2, 2),
    "ARRAY_COUNT": (1, 1), "ARRAY_SUM": (1, 1), "ARRAY_MIN": (1, 1), "ARRAY_MAX": (1, 1), "ARRAY_AVG": (1, 1),
    "ABS": (1, 1), "FLOOR": (1, 1), "CEILING": (1, 1), "ROUND": (1, 1), "GREATEST": (1, 3), "LEAST": (1, 3),
    "CRC32": (1, 1), "GEO_DISTANCE": (4, 4), "COALESCE": (1, 3), "TRUE_VALUE": (0, 0), "FALSE_VALUE": (0, 0),
    "NAN_VALUE": (0, 0), "CHAR_VALUE": (1, 1), "MESSAGE_SIZE": (0, 0), "TOPIC_NAME": (0, 0), "BOOKMARK": (0, 0),
    "CORRELATION_ID": (0, 0), "CLIENT_NAME": (0, 0), "LAST_UPDATED": (0, 0), "AMPS_INSTANCE_NAME": (0, 0),
    "LEASE_COUNT": (0, 0), "UNIX_TIMESTAMP": (0, 0),
}
# x, y and z are expressions, @ is a pattern; how often each is taken.
_OPERATORS = {
    "(x AND y)": 4, "(x OR y)": 4, "(x AND y AND z)": 2, "(x OR y OR z)": 2, "(NOT x)": 3, "(x = y)": 3, "(x != y)": 3,
    "(x < y)": 3, "(x <= y)": 3, "(x > y)": 3, "(x >= y)": 3, "(x BETWEEN y AND z)": 3, "(x NOT BETWEEN y AND z)": 1,
    "(x IN (y))": 1, "(x IN (y, z))": 2, "(x NOT IN (y, z))": 1, "(x BEGINS WITH (y))": 2, "(x ENDS WITH (y, z))": 2,
    "(x IS NULL)": 1, "(x IS NOT NULL)": 1, "(x IS NAN)": 1, "(x + y)": 4, "(x - y)": 4, "(x * y)": 4, "(x / y)": 4,
    "(x % y)": 3, "(- x)": 2, "IF(x, y, z)": 3, "(x LIKE @)": 5, "(x NOT LIKE @)": 1, "REGEXP_REPLACE(x, @, y)": 2,
    "call": 22,
}
# fmt: on


class Maker:
    """Makes expressions and bodies from a random number."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - tests

    def number(self):
        r = self.random
        if r.random() < 0.8:
            return r.choice(_NUMBERS)
        return repr(r.choice([r.uniform(-1e3, 1e3), r.randrange(-(2**64), 2**65), r.random() * 10 ** r.randrange(25)]))

    def value(self, depth=0):
        r = self.random
        match r.choices(["number", "string", "word", "array", "object"], [38, 28, 8, 16, 10])[0]:
            case "number":
                return self.number()
            case "string":
                return r.choice(_STRINGS)
            case "word":
                return r.choice(["null", "true", "false"])
            case "array" if depth < 4:
                return (
                    "["
                    + r.choice([",", ", "]).join(self.value(depth + 1) for _ in range(r.choice([0, 1, 2, 3, 4, 8])))
                    + "]"
                )
        return self.object(depth + 1) if depth < 4 else "{}"

    def object(self, depth=0):
        r, members = self.random, []
        for _ in range(r.choice([0, 1, 2, 3, 5, 6])):
            name = r.choice(_NAMES) if r.random() < 0.95 else r.choice(["", "\\u0061", "1", "x y"])
            members.append(f'"{name}"{r.choice([":", ": "])}{self.value(depth)}')
        return "{" + ",".join(members) + "}"

    def element(self):
        r = self.random
        match r.choices(["number", "string", "long", "object", "array"], [4, 4, 2, 2, 1])[0]:
            case "number":
                return self.number()
            case "string":
                return r.choice(_STRINGS)
            case "long":
                return self.long_text(r.choice([20, 70, 300]))
            case "object":
                return self.object(3)
        return f"[{','.join(self.number() for _ in range(r.randrange(9)))}]"

    def long_text(self, most):
        r = self.random
        piece = r.choice(["a", "ab", "abc", "aab", "1", "0", " ", "%Y", "é", "hello world ", "x.y,"])
        size = r.randrange(most)
        return f'"{(piece * size)[:size]}{r.choice(["", "b", "abc", "1"])}"'

    def large_body(self):
        """An object of long arrays and texts, so that many evaluations have too few steps."""
        r, members = self.random, []
        for name in _NAMES:
            match r.choices(["usual", "text", "same", "mixed", "objects"], [2, 4, 2, 2, 2])[0]:
                case "usual":
                    value = self.value()
                case "text":
                    value = self.long_text(r.choice([100, 3_000, 30_000, 90_000]))
                case "same":
                    value = f"[{','.join([self.element()] * r.choice([10, 100, 1_000, 3_000]))}]"
                case "mixed":
                    value = f"[{','.join(self.element() for _ in range(r.choice([5, 50, 100, 500])))}]"
                case "objects":
                    value = f"[{','.join(self.object(3) for _ in range(r.choice([5, 50, 500])))}]"
            members.append(f'"{name}":{value}')
        return f"{{{','.join(members)}}}".encode()

    def body(self):
        """JSON, mostly of an object; one in ten with something wrong in it."""
        r = self.random
        body = (self.object() if r.random() < 0.96 else self.value()).encode()
        for _ in range(r.choice([1, 2]) if r.random() < 0.1 else 0):
            at = r.randrange(len(body) + 1)
            body = body[:at] + r.choice(_BROKEN) + body[at + r.randrange(2) :]
        return body

    def identifier(self):
        r = self.random
        text = f"/{r.choice(_NAMES)}"
        while r.random() < 0.25:
            text += r.choice(["[0]", "[1]", "[2]", *[f"/{name}" for name in _NAMES]])
        return text

    def call(self, depth):
        r = self.random
        if r.random() < 0.1:
            form = repr(r.choice(_FORMS)) if r.random() < 0.8 else self.text(depth)
            return f"{r.choice(['STRFTIME', 'STRPTIME'])}({form}, {self.text(depth)})"
        name = r.choice([*_CALLS])
        return f"{name}({', '.join(self.text(depth) for _ in range(r.randint(*_CALLS[name])))})"

    def text(self, depth=0):
        """An expression's text, in brackets where it has operators."""
        r = self.random
        if depth > 4 or r.random() < 0.2 + 0.08 * depth:
            return self.identifier() if r.random() < 0.7 else r.choice(_CONSTANTS)
        form = r.choices([*_OPERATORS], [*_OPERATORS.values()])[0]
        if form == "call":
            return self.call(depth + 1)
        pattern = r.choice(_PATTERNS)
        return re.sub("[xyz]", lambda _: self.text(depth + 1), form).replace("@", f"r'{pattern}'")


@cache
def batch(seed, *, large=False):
    """Cases, and what Python says of them."""
    maker, cases, said = Maker(seed), [], []
    body = maker.large_body()
    while len(cases) < _PAIRS:
        body, fields = body if large else maker.body(), _META
        if not large and maker.random.random() < 0.02:
            body, fields = None, {b"a": b"12", b"c": b"text", b"d": b""}
        case = Case(maker.text(), body, "query", fields, _KNOWN)
        with suppress(ExpressionError):
            said.append(case.said)
            cases.append(case)
    return cases, said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("large", [False, True])
def test_python_and_lua_say_the_same(server_side, large):
    over = []

    @settings(
        max_examples=_EXAMPLES // 6 if large else _EXAMPLES,
        database=None,
        derandomize="AMPSQ_EXAMPLES" not in os.environ,
    )
    @given(st.integers(0, 2**64 - 1))
    def run(seed):
        cases, said = batch(seed, large=large)
        for case, expected, found in zip(cases, said, server_side.evaluate(cases), strict=True):
            assert found[:4] == expected, (case.text, case.body[:500])
            left = case.steps_left
            # A body that is not JSON is not evaluated at all.
            if left < 0:
                over.append(case)
            elif case.document.is_json:
                assert found[6] == left, (case.text, case.body[:500])

    run()
    assert not large or len(over) > _EXAMPLES // 6 * _PAIRS / 50
