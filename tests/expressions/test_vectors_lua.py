"""The table of cases, evaluated by the server's scripts, many in a call."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from server_side import KNOWN, Case, ServerSide, described, place

from ampsq.protocol.scripts import compose_text


def _read(name):
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _text(written):
    """A text, or one as pieces with how often each is repeated."""
    return written if isinstance(written, str) else "".join(piece * times for piece, times in written)


def _value(written):
    """A value as vectors.json writes it."""
    match written:
        case {"int": digits}:
            return int(digits)
        case {"float": text}:
            return float(text)
        case {"s": text}:
            return text.encode()
        case {"x": text}:
            return bytes.fromhex(text)
        case list():
            return [_value(element) for element in written]
    return written


def _case(vector, *, fold=True):
    body = _text(vector["body"]).encode() if "body" in vector else None
    if "body_hex" in vector:
        body = bytes.fromhex(vector["body_hex"])
    fields = {name.encode(): text.encode() for name, text in vector.get("fields", {}).items()}
    known = {name: vector.get("id" if name == "stream_id" else name, usual) for name, usual in KNOWN.items()}
    return Case(_text(vector["text"]), body, vector.get("use", "query"), fields, known, fold)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("table", ["vectors.json", "limits.json"])
def test_every_vector_has_its_value_on_the_server(server_side, table, fold):
    told = [vector for vector in _read(table) if "error" not in vector]
    cases, wrong = [_case(vector, fold=fold) for vector in told], []
    for instance in {case.known["instance"] for case in cases}:
        chosen = [pair for pair in zip(told, cases, strict=True) if pair[1].known["instance"] == instance]
        found = server_side.evaluate([case for _, case in chosen])
        for (vector, case), has in zip(chosen, found, strict=True):
            if has[:4] != [described(_value(vector["value"])), *case.said[1:]]:
                wrong.append((vector, has))
    assert not wrong


@pytest.mark.parametrize(
    ("text", "body", "is_quick"),
    [
        ("/n >= 0", b'{"n": 1}', 1),
        ("/n >= 0", b'{"n": -1.5}', 1),
        ("/n >= 0", b'{"m": 1}', 1),
        ("/n >= 0", b'{"n": "1"}', 0),
        ("/n >= 0", b'{"n": [1, 2]}', 0),
        ("/n >= 0", b'{"n": 9007199254740993}', 0),
        ("/n >= 0", b'[{"n": 1}]', 0),
        ("/n >= 0", b"no JSON", 0),
        ("/n >= 0", b'{"n": 1.}', 0),
        ("/s = 'a' AND /n < 3 OR NOT /n = 7", b'{"s": "b", "n": 8}', 1),
        ("/s = 'a' AND /n < 3", b'{"n": 2}', 1),
        ("/s IN ('a', 'b')", b'{"s": "b"}', 1),
        ("/s IN ('a', 'b')", b'{"s": 1}', 0),
        ("/n", b'{"n": 3}', 1),
        ("/n", b'{"n": 0}', 1),
        ("/n", b'{"n": null}', 0),
        ("/a/n >= 0", b'{"a": {"n": 1}}', 0),
        ("LENGTH(/s) = 1", b'{"s": "b"}', 0),
    ],
)
def test_simple_expressions_are_judged_quickly(server_side, text, body, is_quick):
    case = Case(text, body)
    ((*found, quick),) = server_side.evaluate([case])

    assert found[:4] == [*case.said]
    assert quick == is_quick


def test_every_priority_has_its_place_on_the_server(server_side):
    told = _read("priorities.json")
    for vector, found in zip(told, server_side.evaluate([_case(vector) for vector in told]), strict=True):
        priority = vector["priority"]
        assert found[2:4] == place(None if priority is None else int(priority)), vector


def test_priorities_are_in_order_where_scores_alone_are_not(server_side):
    priorities = [2**64 - 1, 2**64 - 2, 2**64 - 2049, 2**53 + 1, 2**53, 2**53 - 1, 3, 0]
    bodies = [b'{"p": %d}' % priority for priority in priorities] + [b'{"p": "none"}', b"no JSON"]
    found = server_side.evaluate([Case("/p", body) for body in bodies])
    order = [(float(score), prefix) for _, _, score, prefix, *_ in found]
    assert order == sorted(order)
    assert len(set(order)) == len(priorities) + 1


# fmt: off
_ODD_BODIES = [
    b"", b" ", b"[1,]", b'{"a":1,}', b"'x'", b"+1", b".5", b"-.5", b"-.5e3", b"1e", b"1.", b"1.e5", b"-1.", b"[1 2]",
    b"1-2",
    b"--1", b"NaN", b"nan", b"-nan", b"Infinity", b"-Infinity", b"inf", b"0x10", b"-0x10", b"01", b"-01", b"00", b"- 1",
    b"-", b"1E+5", b"1e+", b"1e400", b"1.5.5", b"1..5", b"1_0", b"[,1]", b"[1,,2]", b"{,}", b"nullx", b"tru", b"null",
    b"True", b"1 x", b"{} {}", b" 1 ", b"\f1", b"\v1", b'{"a" 1}', b"{1:2}", b"[1}", b"[[1]", b"// c", b"1/**/",
    b"\xef\xbb\xbf1", b"\xff\xfe1\x001\x00", b"1\x00", b"\xa01", b'"a', b'"\\"', b'"\\x41"', b'"\\u00zz"', b'"\\U0041"',
    b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\u0041"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"a\tb"', b'"a\nb\r"',
    b'"a\x01b"', b'"\x7f"', b'"\xff"', b'"\xed\xa0\x80"', b'"1. 2"', b'["\\"1.",1]', b'["\\\\",1.]', b'["-.",-.1]',
    b"[" * 100 + b"]" * 100, b"[" * 101 + b"]" * 101, b'{"a":' * 100 + b"1" + b"}" * 100,
    b'{"a":' * 101 + b"1" + b"}" * 101,
    b'{"a":1}\n', b'"' + b"1.5 " * 40 + b'"', b'["' + b"1.5 " * 40 + b'",1.]', b'["' + b"5. " * 40 + b'",1.0]',
]
# fmt: on


def test_the_server_takes_exactly_the_bodies_that_are_json(server_side):
    cases = [Case("1", body) for body in _ODD_BODIES]
    wrong = [
        case.body for case, found in zip(cases, server_side.evaluate(cases), strict=True) if found[:4] != case.said
    ]
    assert not wrong


def _long_texts():
    """Pairs of long texts that differ late, or contain each other, or seem to."""
    for size in (7, 8, 63, 64, 65, 66, 127, 128, 1_000, 5_000):
        same = "ab" * (size // 2) + "a" * (size % 2)
        yield from ((same, same), (same, same + "x"), (same + "y", same + "x"), (same + "é" + same, same + "z" + same))
    yield "a" * 50_000, "a" * 30_000
    yield "a" * 50_000, "a" * 30_000 + "b"
    yield "ab" * 25_000 + "a" * 30_000 + "b", "a" * 30_000 + "b"
    yield "abcdefghijklmnopq" * 3_000 + "x", "abcdefghijklmnopq" * 1_000 + "x"


@pytest.mark.parametrize("text", ["/s < /t", "/t < /s", "/s <= /t", "INSTR(/s, /t)", "LENGTH(REPLACE(/s, /t, '-'))"])
def test_long_texts_are_compared_and_found_as_python_does_it(server_side, text):
    cases = [Case(text, json.dumps({"s": s, "t": t}).encode()) for s, t in _long_texts()]
    for case, found in zip(cases, server_side.evaluate(cases), strict=True):
        assert found[:4] == case.said, (text, case.body[:100], len(case.body))


def _costly():
    """Yield the slowest within the steps: texts, automata, pairs, lists, exact numbers, many nodes."""
    texts = ["x" * 60 + f"b{n}" for n in range(65)]
    yield " OR ".join(["/s LIKE '" + "a" * 63 + "b'"] * 20), {"s": "a" * 60_000}
    yield " OR ".join(["INSTR_I(/s, '" + "a" * 15 + "b')"] * 20), {"s": "a" * 30_000}
    yield " + ".join(["LENGTH(REPLACE(/s, 'ab', 'x'))"] * 12), {"s": "ab" * 3_000}
    yield "CRC32(/s)", {"s": "ab" * 9_999}
    yield "STRPTIME(/s, /t) + 0", {"s": "%B" * 3_700, "t": "December" * 3_700}
    yield " OR ".join(["/l/a/b = 1"] * 120), {"l": [{"c": 1}] * 8_000}
    yield "(/s LIKE '(a|b)*c')", {"s": "a" * 59_990}
    yield "(/s LIKE '(a|b)*a(a|b){12}c')", {"s": "ab" * 750}
    yield "REGEXP_REPLACE(/s, 'a', 'c')", {"s": "a" * 7_400}
    yield "/l < /m", {"l": texts, "m": ["x" * 60 + f"a{n}" for n in range(65)] + [5.5]}
    yield "/l = /m", {"l": [2**63 + n for n in range(65)], "m": [-0.5 - n for n in range(65)]}
    yield "/l BEGINS WITH (/m)", {"l": [2**60 + n for n in range(65)], "m": [-(2**60) + n for n in range(65)]}
    yield "ARRAY_SUM(/l)", {"l": [2**60 + n for n in range(2_490)]}
    yield "ARRAY_SUM(/l)", {"l": [str(10**18 + n) for n in range(2_300)]}
    yield "ARRAY_MIN(/l)", {"l": [f"abcdefgh{n}" for n in range(2_490)]}
    yield "ARRAY_TO_STRING(/l, ' ')", {"l": [*range(2_400)]}
    yield " OR ".join(["/a = 2"] * 160), {"a": 1}
    yield "/a" + " / 3 * 2" * 24, {"a": 2**60 + 1}


_TIMED = """
--- time_evaluation: the least milliseconds of processor time that an evaluation takes, the body decoded before, and
--- those of work that is always the same
--- ARGV tree, body
--- FAIL FORMAT_MISMATCH
--- GIVES {milliseconds, milliseconds of the same work}
--- @include fail, expression()
local X, least, same = expression(), 1e9, 1e9
local compiled = X.compile_expression(tree)
local document = X.open_document('', '0-0', {F.body, body}, 0, 0)
for _ = 1, 6 do
  document.checksums = nil
  local start = os.clock()
  X.expression_matches(compiled, document)
  least = math.min(least, os.clock() - start)
  start = os.clock()
  local text = {}
  for i = 1, 10000 do text[i] = tostring(i) end
  same = math.min(same, os.clock() - start)
end
return {string.format('%.3f', least * 1000), string.format('%.3f', same * 1000)}
"""


def test_an_evaluation_is_bounded_in_server_time(valkey):
    # Not on Redis too: scripts of 7.0 have no clock.
    cases = [Case(text, json.dumps(content).encode()) for text, content in _costly()]
    timed = compose_text("time_evaluation", _TIMED).source
    with closing(valkey.client()) as client:
        for case, found in zip(cases, ServerSide(client).evaluate(cases), strict=True):
            assert found[:4] == case.said, case.text
        took = [
            (*map(float, client.eval(timed, 1, "{o}", case.expression.json, case.body)), case.text[:60])
            for case in cases
        ]
    print(f"the worst evaluation: {max(took)[0]} ms, {max(took)[2]}")  # noqa: T201 - what is to be known of it
    # The worst takes about four times as long as writing 10,000 numbers, on a busy machine too.
    assert max(own / same for own, same, _ in took) < 8
