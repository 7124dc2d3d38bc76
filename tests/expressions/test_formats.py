"""Bodies of other message types than JSON: Python and the server's scripts read the same of them."""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress

import msgpack
import pytest
from cases import short_and_whole
from hypothesis import given, settings
from hypothesis import strategies as st
from server_side import Case, described
from test_fuzz import Maker

from ampsq.base.errors import ExpressionError
from ampsq.base.message_types import MessageType

_PAIRS = 20
MSGPACK, FIX, NVFIX = (MessageType(name) for name in ("msgpack", "fix", "nvfix"))
BAR = MessageType("fix", "|")
_ORDER = {"symbol": "IBM", "price": 120.5, "qty": 200, "legs": [{"qty": 50}, {"qty": 150}], "note": ""}

# fmt: off
_READ = [
    (MSGPACK, _ORDER, "/symbol = 'IBM' AND /price > 100", 1),
    (MSGPACK, _ORDER, "/legs/qty", [50, 150]),
    (MSGPACK, _ORDER, "/legs[1]/qty", 150),
    (MSGPACK, _ORDER, "/note IS NULL", 1),
    (MSGPACK, _ORDER, "/price * /qty", 24100.0),
    (MSGPACK, {"a": 5.0}, "/a / 2", 2.5),
    (MSGPACK, {"a": 5}, "/a / 2", 2),
    (MSGPACK, {"a": 2**64 - 1}, "/a", 2**64 - 1),
    (MSGPACK, {"a": 2**63}, "/a", 2**63),
    (MSGPACK, {"a": -(2**63)}, "/a", -(2**63)),
    (MSGPACK, {"a": 2**53 + 1}, "/a - 1", 2**53),
    (MSGPACK, {"a": -(2**53) - 1}, "/a + 0", -(2**53) - 1),
    (MSGPACK, {"a": -(2**32)}, "/a", -(2**32)),
    (MSGPACK, {"a": 1e300}, "/a", 1e300),
    (MSGPACK, {"a": 5e-324}, "/a", 5e-324),
    (MSGPACK, {"a": float("inf")}, "/a > 1e308", 1),
    (MSGPACK, {"a": float("nan")}, "/a IS NAN", 1),
    (MSGPACK, {"a": -0.0}, "CONCAT(/a, '')", b"-0"),
    (MSGPACK, {"a": b"\xff\x00"}, "/a", b"\xff\x00"),
    (MSGPACK, {"a": "\x01x", "\x01": "y"}, "/a", b"\x01x"),
    (MSGPACK, {"a": True, "b": False, "c": None}, "/a + /b", 1),
    (MSGPACK, {55: "IBM", 2**60: "big"}, "/55", b"IBM"),
    (MSGPACK, {55: "IBM", 2**60: "big"}, "/1152921504606846976", b"big"),
    (MSGPACK, {-1: "minus", 1.5: "float", True: "true"}, "/-1", b"minus"),
    (MSGPACK, {"a": msgpack.ExtType(5, b"abc")}, "/a IS NULL", 1),
    (MSGPACK, {"a": msgpack.Timestamp(1, 5)}, "/a IS NULL", 1),
    (MSGPACK, [1, [2, {"a": 3}]], "/a", 3),
    (MSGPACK, "text", "/a IS NULL", 1),
    (MSGPACK, {"a": [None, "", {}, [], 7]}, "/a", 7),
    (FIX, b"35=D\x0155=IBM\x0144=12.50\x0138=100\x01", "/55 = 'IBM' AND /44 > 12 AND /38 <= 100", 1),
    (FIX, b"35=D\x0155=IBM", "/35", b"D"),
    (FIX, b"448=A\x01448=B\x01448=\x01448=C\x01", "/448", [b"A", b"B", b"C"]),
    (FIX, b"448=A\x01448=B\x01", "/448[1]", b"B"),
    (FIX, b"55=\x0158=a=b\x01", "/55 IS NULL AND /58 = 'a=b'", 1),
    (FIX, b"38=9007199254740993\x01", "/38 + 0", 2**53 + 1),
    (FIX, b"38=7\x0144=2\x01", "/38 / /44", 3),
    (FIX, b"38=10\x0144=9\x01", "/38 > /44", 0),
    (BAR, b"55=\x01x|58=y|", "CONCAT(/55, /58, 2 * 1.0)", b"\x01xy2"),
    (NVFIX, b"symbol=IBM\x01price=12\x01", "/symbol = 'IBM' AND /price BETWEEN 10 AND 20", 1),
    (NVFIX, b"a b=1\x01\xc3\xa9=2", "[/a b] + [/\xe9]", 3),
]
_MALFORMED = [
    (MSGPACK, body) for body in (
        b"", b"\xc1", b"\x81", b"\x81\xa1a", b"\x01\x02", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff\x01",
        b"\xa5ab",
        b"\xcb\x00", b"\xcf\x00", b"\x81\x90\x01", b"\x81\x80\x01", b"\x81\xdc\x00\x00\x01", b"\xc7\x02\xffab",
        b"\xd6\xff\x00\x00\x00", b"\xd7\xff\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x91" * 101 + b"\x01", b"\xdc\x27\x10" + b"\x01" * 10_000,
        b"\x82\xa1a" + b"\x91" * 101 + b"\x01\xa1a\x01", b"\x81\x05" + b"\x91" * 101 + b"\x01", b'{"a": 1}',
    )
] + [
    (message_type, body) for message_type in (FIX, NVFIX) for body in (
        b"", b"\x01", b"5", b"=5", b"5=1\x01\x016=2", b"5=1\x01\x01", b"5=1\x01x", b"5=\x01" * 10_001,
    )
] + [(FIX, b"a=1"), (FIX, b"5 =1"), (FIX, b"-5=1"), (BAR, b"5=1\x016=2|7"), (MessageType("binary"), b"55=1")]
_SOUND = [
    (MSGPACK, body) for body in (
        b"\x80", b"\x90", b"\xc0", b"\xc2", b"\x7f", b"\xe0", b"\x91" * 100 + b"\x01",
        b"\xdc\x27\x0f" + b"\x01" * 9_999,
        b"\xc7\x00\x05", b"\xc9\x00\x00\x00\x01\x05x", b"\xd6\xff\x00\x00\x00\x00", b"\xd4\xfex", b"\xc4\x01\xff",
        b"\xd9\x01a",
        b"\x81\xc0\x01", b"\x81\xcb" + b"\x00" * 8 + b"\x01", b"\x82\xa1a\x01\xa1a\x02", b"\x81\xd6\x05abcd\x01",
        b"\xca\x00\x00\x00\x01", b"\xca\x7f\x80\x00\x00", b"\xca\xff\xc0\x00\x00",
        b"\xd3" + b"\xff" * 8, b"\x81\xc4\x01a\x05",
    )
] + [
    (message_type, body) for message_type in (FIX, NVFIX)
    for body in (b"5=", b"5==", b"5=1\x015=2", b"5=\x01" * 10_000, b"5=\x00\xff")
]
# fmt: on


def test_identifiers_read_every_message_type(server_side):
    bodies = [msgpack.packb(given) if message_type is MSGPACK else given for message_type, given, *_ in _READ]
    cases = [
        Case(text, body, message_type=message_type)
        for (message_type, _, text, _), body in zip(_READ, bodies, strict=True)
    ]
    for case, found, (*_, value) in zip(cases, server_side.evaluate(cases), _READ, strict=True):
        assert case.said[0] == described(value), (case.text, case.body)
        assert found[:4] == case.said, (case.text, case.body)
        assert found[6] == case.steps_left, (case.text, case.body)


@pytest.mark.parametrize(("table", "expected"), [(_SOUND, True), (_MALFORMED, False)])
def test_what_is_not_of_its_type_matches_no_filter(server_side, table, expected):
    cases = [Case("TRUE_VALUE()", body, message_type=message_type) for message_type, body in table]
    for case, found in zip(cases, server_side.evaluate(cases), strict=True):
        assert (case.document.is_json, bool(found[1])) == (expected, expected), (case.message_type, case.body[:80])


def test_the_digits_of_large_integers_and_the_bits_of_floats_are_read_exactly(server_side):
    dice = random.Random(5)  # noqa: S311 - tests
    integers = [dice.getrandbits(dice.randrange(1, 65)) for _ in range(300)]
    integers += [-(dice.getrandbits(dice.randrange(1, 64)) or 1) for _ in range(300)]
    patterns = [dice.randbytes(9)[1:] for _ in range(300)]
    bodies = [msgpack.packb({"a": number}) for number in integers]
    bodies += [b"\x81\xa1a\xcb" + bits for bits in patterns] + [b"\x81\xa1a\xca" + bits[:4] for bits in patterns]
    cases = [Case(text, body, message_type=MSGPACK) for body in bodies for text in ("/a", "CONCAT(/a, '')")]
    for case, found in zip(cases, server_side.evaluate(cases), strict=True):
        assert found[:4] == case.said, case.body


def _fields_of(dice, content, message_type):
    """Fields with the names and texts of a random document."""
    pairs = []
    for name, value in content.items() if isinstance(content, dict) else ():
        written = str(ord(name[0]) % 9) if message_type.name == "fix" and name else name
        for each in value if isinstance(value, list) else [value]:
            text = each if isinstance(each, str) else json.dumps(each)
            pairs.append(f"{written}={text}")
    dice.shuffle(pairs)
    return message_type.separator.join(pairs).encode("utf-8", "surrogateescape")


def _body(maker, message_type):
    dice = maker.random
    while True:
        with suppress(ValueError):
            content = json.loads(maker.object())
            packed = (
                msgpack.packb(_small(content, dice))
                if message_type is MSGPACK
                else _fields_of(dice, content, message_type)
            )
            if dice.random() < 0.15:
                at = dice.randrange(len(packed) + 1)
                packed = packed[:at] + dice.randbytes(dice.randrange(3)) + packed[at + dice.randrange(2) :]
            return packed


def _small(content, dice):
    """Return the part of a document that MessagePack can hold, and some that JSON cannot."""
    if isinstance(content, dict):
        return {
            (name if dice.random() < 0.95 else dice.randrange(9)): _small(value, dice)
            for name, value in content.items()
        }
    if isinstance(content, list):
        return [_small(value, dice) for value in content]
    if isinstance(content, int) and not -(2**63) <= content < 2**64:
        return float("nan")
    if isinstance(content, str) and dice.random() < 0.2:
        return content.encode("utf-8", "surrogatepass")
    return content


@short_and_whole("examples", 12, 60)
@pytest.mark.parametrize("message_type", [MSGPACK, FIX, NVFIX, BAR], ids=str)
def test_python_and_lua_say_the_same_of_every_type(server_side, message_type, examples):
    @settings(
        max_examples=int(os.environ.get("AMPSQ_EXAMPLES", examples)),
        database=None,
        derandomize="AMPSQ_EXAMPLES" not in os.environ,
    )
    @given(st.integers(0, 2**64 - 1))
    def run(seed):
        maker, cases, said = Maker(seed), [], []
        while len(cases) < _PAIRS:
            text = maker.text()
            if message_type.name == "fix":
                text = text.replace("/a", "/7").replace("/b", "/8").replace("/c", "/0")
            case = Case(text, _body(maker, message_type), message_type=message_type)
            with suppress(ExpressionError):
                said.append(case.said)
                cases.append(case)
        for case, expected, found in zip(cases, said, server_side.evaluate(cases), strict=True):
            assert found[:4] == expected, (case.text, case.body)
            if case.document.is_json:
                assert found[6] == case.steps_left, (case.text, case.body)

    run()
