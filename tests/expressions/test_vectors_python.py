"""The table of cases, evaluated in Python: as parsed, with nothing folded, and after a journey as JSON or pickle.

A case of `vectors.json` is the text, its use ("query" unless it says otherwise), the body (or its bytes as hex;
neither for an entry without one), what else is known of the message, and the value: null, a number, {"int": digits},
{"float": text}, {"s": text}, {"x": hex} or a list of these; of a refusal the column and a part of the text. In
`limits.json` long texts are pieces, each with how often it is repeated.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from cases import for_each

from ampsq.base.errors import ExpressionError
from ampsq.expressions import Document, Expression, parse
from ampsq.expressions.check import checked
from ampsq.expressions.functions import FUNCTIONS
from ampsq.expressions.grammar import parse_nodes
from ampsq.protocol.entries import read_entry


def table(name):
    cases = json.loads(Path(__file__).with_name(name).read_text(encoding="ascii"))
    return [{**case, "text": whole(case["text"]), **bodies(case)} for case in cases]


def whole(written):
    return written if isinstance(written, str) else "".join(piece * times for piece, times in written)


def bodies(case):
    return {"body": whole(case["body"])} if "body" in case else {}


CASES = table("vectors.json") + table("limits.json")
VALUES = [case for case in CASES if "error" not in case]
REFUSALS = [case for case in CASES if "error" in case]
PRIORITIES = table("priorities.json")


def name_of(case):
    return f"{case['text']} on {case.get('body', '')}"[:80]


def document_of(case):
    body = case["body"].encode() if "body" in case else None
    fields, source = read_entry([text.encode() for pair in case.get("fields", {}).items() for text in pair])
    return Document(
        bytes.fromhex(case["body_hex"]) if "body_hex" in case else body,
        fields=fields,
        source=source,
        topic=case.get("topic", ""),
        stream_id=case.get("id", "0-0"),
        origin=case.get("origin", ""),
        instance=case.get("instance", ""),
        deliveries=case.get("deliveries", 0),
        now=case.get("now"),
    )


def value_of(written):
    match written:
        case {"int": digits}:
            return int(digits)
        case {"float": text}:
            return float(text)
        case {"s": text}:
            return text.encode()
        case {"x": digits}:
            return bytes.fromhex(digits)
        case list():
            return [value_of(element) for element in written]
        case _:
            return written


def exactly(value):
    """A value so that NaN equals itself, and 5 and 5.0, or 0.0 and -0.0, differ."""
    return [exactly(element) for element in value] if isinstance(value, list) else (type(value), repr(value))


@for_each("case", VALUES, name_of)
def test_an_expression_has_its_value(case):
    expression, document = parse(case["text"], case.get("use", "query")), document_of(case)

    value = expression.value(document)

    assert exactly(value) == exactly(value_of(case["value"]))


@for_each("case", VALUES, name_of)
def test_the_value_is_the_same_when_constants_are_not_folded(case):
    tree = checked(parse_nodes(case["text"]), case["text"], case.get("use", "query"), fold=False)

    value = Expression.of_tree(case["text"], tree).value(document_of(case))

    assert exactly(value) == exactly(value_of(case["value"]))


@for_each("case", REFUSALS, name_of)
def test_a_refusal_says_where_and_what(case):
    with pytest.raises(ExpressionError) as refusal:
        parse(case["text"], case.get("use", "query"))

    assert refusal.value.column == case["error"]
    assert case["contains"] in str(refusal.value)


@for_each("case", PRIORITIES, name_of)
def test_a_value_is_read_as_a_priority(case):
    priority = parse(case["text"], "priority").priority(document_of(case))

    assert priority == (None if case["priority"] is None else int(case["priority"]))


def test_every_function_is_in_the_table():
    texts = " ".join(case["text"].upper() for case in VALUES)

    assert [name for name in [*FUNCTIONS, "IF", "REGEXP_REPLACE"] if f"{name}(" not in texts] == []


def test_trees_survive_json_and_expressions_pickle():
    for case in VALUES:
        expression = parse(case["text"], case.get("use", "query"))

        again = Expression.of_tree(case["text"], json.loads(expression.json))
        thawed = pickle.loads(pickle.dumps(expression))  # noqa: S301 - our own

        assert expression.json.isascii()
        assert (again.json, again.id) == (expression.json, expression.id)
        assert thawed == expression
        assert exactly(again.value(document_of(case))) == exactly(thawed.value(document_of(case)))
