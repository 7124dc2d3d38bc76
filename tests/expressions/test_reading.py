"""Reading of large bodies: Python and the server's scripts leave the same steps and the same bodies unread."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgpack
import pytest
from cases import short_and_whole
from server_side import KNOWN, Case

from ampsq.base.message_types import EXPRESSION_LIMIT, JSON, SMALL_BODY, MessageType
from ampsq.expressions import Document, parse
from ampsq.expressions.budget import STEPS
from ampsq.protocol import schema

MSGPACK, FIX, NVFIX = (MessageType(name) for name in ("msgpack", "fix", "nvfix"))
_PAD = "x" * SMALL_BODY
_TEXTS = (
    "/a = 1", "/a / 2", "CONCAT(/a, '')", "/a + 0", "/b", "/l = 3", "ARRAY_COUNT(/l)", "/t = 'b'", "/a IS NULL",
    "/a > 9007199254740992", "/t + 0",
)  # fmt: skip


def _compare(server_side, cases):
    for case, found in zip(cases, server_side.evaluate(cases), strict=True):
        assert found[:4] == case.said, (case.text, case.body[-200:])
        assert found[6] == case.steps_left or not case.document.is_json, (case.text, case.body[-200:])


def _large(**members):
    return json.dumps({"pad": _PAD, **members}).encode()


@pytest.mark.parametrize(
    "number",
    ["1", "1.0", "-0", "-0.0", "1e0", "2.5", "1e400", "-1e400", "9007199254740991", "9007199254740992",
     "9007199254740993", "-9007199254740993", "18446744073709551615", "9007199254740993.5", "123456789012345678901",
     "0.1", "1e-400", "9e15", "1e15"],
)  # fmt: skip
def test_numbers_of_large_bodies_are_doubles(server_side, number):
    body = b'{"pad":"%s","a":%s,"l":[1,%s,3],"t":"b","b":true}' % (_PAD.encode(), number.encode(), number.encode())
    _compare(server_side, [Case(text, body) for text in _TEXTS])


def test_a_whole_number_of_a_large_body_is_an_integer_below_two_to_the_fifty_third():
    value = parse("/a", "query").value
    assert value(Document(b'{"a":1.0}')) == 1.0
    assert isinstance(value(Document(b'{"a":1.0}')), float)
    found = value(Document(b'{"a":1.0,"pad":"%s"}' % _PAD.encode()))
    assert (found, type(found)) == (1, int)
    found = value(Document(b'{"a":9007199254740993,"pad":"%s"}' % _PAD.encode()))
    assert (found, type(found)) == (2.0**53, float)


@pytest.mark.parametrize(
    "number", [1, 1.0, -0.0, 2.5, 2**53 - 1, 2**53, 2**64 - 1, -(2**63), float("inf"), float("nan")]
)
def test_numbers_of_large_messagepack_are_doubles(server_side, number):
    body = msgpack.packb({"pad": _PAD, "a": number, "l": [1, number, 3], "t": "\x01b", 2**60: "key"})
    _compare(server_side, [Case(text, body, message_type=MSGPACK) for text in _TEXTS])


@pytest.mark.parametrize("text", ["/1 = 1", "/1 + 0", "/2 = 'b'", "CONCAT(/1, /3)", "/3 + 1"])
def test_large_fields_are_texts(server_side, text):
    body = b"1=9007199254740993\x012=b\x013=\x01y\x011=\x01x".replace(b"=\x01", b"=") + b"\x019=" + _PAD.encode()
    _compare(server_side, [Case(text, body, message_type=kind) for kind in (FIX, NVFIX)])


# fmt: off
_POINTS = [
    b"1.", b"-.5", b"1.e5", b"1.0", b"[1., 2]", b'"1. 2"', b'"in 2024. Then -. 1.e5"', b'["1.", 1.]', b"-.0", b"0.e5",
    b'"\\\\1."', b'"\\"1.", 2', b'["\\"1.,", 1.5]', b'["\\"1.,", 1.]',
]
# fmt: on


@pytest.mark.parametrize("piece", _POINTS)
def test_a_bare_point_in_a_large_body_is_found_outside_of_strings_alone(server_side, piece):
    _compare(server_side, [Case("/b", b'{"b":1,"pad":"%s","a":%s}' % (_PAD.encode(), piece))])


def _bodies():
    """Bodies of both sizes just about what may be read, and what costs most to read."""
    for signs in (29_400, 29_460, 29_472, 29_473, 29_490, 29_600):
        yield JSON, b"[" + b"1," * (signs - 1) + b"1]"
    yield JSON, b"[" * 100 + b"1," * 16_384 + b"1" + b"]" * 100
    yield JSON, b'{"s":"' + b"," * 50_000 + b'"}'
    yield JSON, b'{"s":"' + b"1. " * 20_000 + b'"}'
    yield JSON, b"[" + b"1.5," * 9_000 + b"1]"
    yield JSON, b'{"a":1,"s":"' + b"x" * (EXPRESSION_LIMIT - 14) + b'"}'
    yield JSON, b'{"a":1,"s":"' + b"x" * (EXPRESSION_LIMIT - 13) + b'"}'
    yield JSON, b"1" * 100_000
    for number in (9_600, 9_700, 9_800, 9_900, 9_999, 10_000):
        yield MSGPACK, msgpack.packb(["abcd"] * number)
        yield NVFIX, b"abc=1\x01" * number
        yield FIX, b"12=1\x01" * number
    yield MSGPACK, msgpack.packb({"a": 1, "s": "x" * (EXPRESSION_LIMIT - 20)})
    yield MSGPACK, msgpack.packb({"a": 1, "s": "x" * EXPRESSION_LIMIT})
    yield FIX, b"1=" + b"x" * (EXPRESSION_LIMIT + 1)


def test_the_same_bodies_are_left_unread(server_side):
    cases = [Case("1", body, message_type=kind) for kind, body in _bodies()]
    _compare(server_side, cases)
    assert {case.document.is_json for case in cases} == {True, False}


def test_a_body_of_the_usual_size_costs_no_steps():
    assert Document(b"[" + b"1," * 16_000 + b"1]").steps == STEPS
    assert Document(b"[" + b"1," * 17_000 + b"1]").steps < STEPS


@short_and_whole("number", 12, 60)
def test_random_large_bodies_are_read_alike(server_side, number):
    made, cases = random.Random(18), []  # noqa: S311 - tests
    for _ in range(number):
        leaf = lambda: made.choice([1, -2.5, 1.0, "a,b", "x. y", None, True, 2**60, 0.1, 'é"\\'])  # noqa: E731
        value = {"a": leaf(), "l": [leaf() for _ in range(made.randrange(5))], "t": leaf(), "b": {"a": [leaf()]}}
        value["rows"] = [[leaf() for _ in range(made.randrange(9))] for _ in range(made.randrange(1_500, 4_500))]
        body = json.dumps(value, ensure_ascii=made.random() < 0.5).encode()
        packed = msgpack.packb(value)
        text = made.choice([*_TEXTS, "/rows = 3", "/b/a"])
        cases += [Case(text, body), Case(text, packed, message_type=MSGPACK)]
    _compare(server_side, cases)


def test_topic_and_instance_say_how_large_a_body_is_read(server_side):
    body = _large(a=1, s="x" * 100_000)
    instance, topics = schema.key("o", "instance"), schema.key("o", "topics")
    known = {**KNOWN, "topic": "orders"}
    try:
        for of_instance, of_topic, is_read in (
            (None, None, True), (100_000, None, False), (None, 100_000, False), (100_000, 200_000, True),
            (200_000, 100_000, False), (8 << 20, None, True), (None, len(body), True), (None, len(body) - 1, False),
        ):  # fmt: skip
            server_side.client.delete(topics)
            server_side.client.hdel(instance, schema.FIELDS["expression_limit"])
            if of_instance:
                server_side.client.hset(instance, schema.FIELDS["expression_limit"], of_instance)
            if of_topic:
                server_side.client.hset(topics, "orders", json.dumps({"expression_limit": of_topic}))
            kind = replace(JSON, expression_limit=of_topic or of_instance or EXPRESSION_LIMIT)
            case = Case("/a = 1", body, known=known, message_type=kind)
            assert case.document.is_json is is_read
            assert case.document.is_unread is not is_read
            _compare(server_side, [case])
    finally:
        server_side.client.delete(topics)
        server_side.client.hdel(instance, schema.FIELDS["expression_limit"])


def test_a_larger_limit_gives_more_steps_in_proportion():
    body = b'{"a":1,"s":"' + b"x" * (3 << 20) + b'"}'
    assert not Document(body).is_json
    document = Document(body, message_type=replace(JSON, expression_limit=4 << 20))
    assert document.is_json
    assert document.steps == 4 * STEPS - len(body) // 32 - 2 * 4
