"""Texts become trees: what means the same has the same tree, and whatever is written, the answer teaches."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ampsq.errors import DefinitionError, ExpressionError
from ampsq.expressions import Document, parse, parse_projection
from ampsq.expressions.diagnosis import KEYWORDS

USES = ["filter", "priority", "barrier", "query"]
A, B, C = ["f", "a"], ["f", "b"], ["f", "c"]


def tree(text, use="query"):
    return json.loads(parse(text, use).json)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b", ["f", "a", "b"]),
        ("/a[0]/b", ["f", "a", 0, "b"]),
        ("[/a b/c]", ["f", "a b", "c"]),
        ("[/a b]/c[7]", ["f", "a b", "c", 7]),
        ("NULL", ["null"]),
        ("5", ["n", 5]),
        ("9007199254740991", ["n", 9007199254740991]),
        ("9007199254740992", ["i", "9007199254740992"]),
        ("-9007199254740992", ["i", "-9007199254740992"]),
        ("1.5", ["d", 1.5]),
        ("'é'", ["s", "é"]),
        (r"'\xff\x00'", ["x", "ff00"]),
        ("/a = 1", ["=", A, ["n", 1]]),
        ("/a == /b", ["=", A, B]),
        ("/a <> /b", ["!=", A, B]),
        ("/a != /b", ["!=", A, B]),
        ("/a MOD /b", ["%", A, B]),
        ("+/a", A),
        ("-/a", ["neg", A]),
        ("/a - 1 - 2", ["-", ["-", A, ["n", 1]], ["n", 2]]),
        ("/a + 2 * 3", ["+", A, ["n", 6]]),
        ("/a AND /b AND /c", ["and", A, B, C]),
        ("/a AND (/b AND /c)", ["and", A, B, C]),
        ("(/a OR /b) OR /c", ["or", A, B, C]),
        ("/a OR /b AND /c", ["or", A, ["and", B, C]]),
        ("NOT /a = 1", ["not", ["=", A, ["n", 1]]]),
        ("/a BETWEEN 1 AND 2 AND /b", ["and", ["between", A, ["n", 1], ["n", 2]], B]),
        ("/a NOT IN (1, /b)", ["not", ["in", A, ["n", 1], B]]),
        ("/a BEGINS WITH 'x'", ["begins", A, ["s", "x"]]),
        ("/a ENDS WITH ('x', /b)", ["ends", A, ["s", "x"], B]),
        ("/a NOT BEGINS WITH /b", ["not", ["begins", A, B]]),
        ("/a IS NULL", ["isnull", A]),
        ("/a IS NOT NULL", ["not", ["isnull", A]]),
        ("/a IS NOT NAN", ["not", ["isnan", A]]),
        ("IF(/a, 1, 2)", ["if", A, ["n", 1], ["n", 2]]),
        ("/a LIKE 'x'", ["has", A, "x"]),
        ("/a LIKE '^x'", ["begins", A, ["s", "x"]]),
        (r"/a LIKE '^\xff'", ["begins", A, ["x", "ff"]]),
        ("upper(/a)", ["call", "UPPER", A]),
        ("UPPER('a')", ["s", "A"]),
        ("NAN_VALUE()", ["call", "NAN_VALUE"]),
        ("1e300 * 1e300", ["*", ["d", 1e300], ["d", 1e300]]),
        ("TOPIC_NAME()", ["call", "TOPIC_NAME"]),
    ],
)
def test_a_text_becomes_a_tree(text, expected):
    assert tree(text) == expected


@pytest.mark.parametrize("pattern", ["^x$", "x+", "^[xy]", r"\xff", "(?i)x"])
def test_other_patterns_become_automata(pattern):
    assert tree(f"/a LIKE '{pattern}'")[0] == "like"
    assert tree(f"REGEXP_REPLACE(/a, '{pattern}', '')")[:3] == ["call", "REGEXP_REPLACE", A]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a=1 and not /b", " /a == (1)\n AND NOT(/b)"),
        ("/a AND /b AND /c", "(/a AND (/b AND /c))"),
        ("/a / 2", "/a/ 2"),
        ("/a IS NOT NULL", "NOT /a IS NULL"),
        ("[/a]/b", "/a/b"),
        ("UPPER(/a) = 'X'", 'upper (/a) = "X"'),
        ("/a > 60", "/a > 2 * 30"),
    ],
)
def test_texts_that_mean_the_same_have_the_same_id(one, other):
    assert parse(one, "query").id == parse(other, "filter").id
    assert len(parse(one, "query").id) == 16


@pytest.mark.parametrize(("one", "other"), [("/a = 5", "/a = 5.0"), ("/a = 5", "/a = '5'"), ("/a", "/A")])
def test_texts_that_mean_something_else_have_another_id(one, other):
    assert parse(one, "query").id != parse(other, "query").id


def test_an_expression_is_parsed_once():
    assert parse("/a = 17", "query") is parse("/a = 17", "query")


def test_a_refusal_points_at_its_place():
    with pytest.raises(ExpressionError) as refusal:
        parse("/a = 1 AND UPER(/b)", "query")

    assert isinstance(refusal.value, DefinitionError)
    assert (refusal.value.text, refusal.value.column) == ("/a = 1 AND UPER(/b)", 12)
    reason, line, caret = str(refusal.value).splitlines()
    assert reason == "column 12: there is no function UPER; did you mean UPPER?"
    assert line[caret.index("^") :] == "UPER(/b)"


def test_a_refusal_in_a_long_text_of_many_lines_shows_the_place():
    text = "/a = 1\nAND " + "/b = 2 AND " * 50 + "! /c"

    with pytest.raises(ExpressionError) as refusal:
        parse(text, "query")

    _, line, caret = str(refusal.value).splitlines()
    assert line[caret.index("^") :] == "! /c"
    assert len(line) < 130


@pytest.mark.parametrize("use", ["filter", "priority", "barrier"])
@pytest.mark.parametrize("function", ["UNIX_TIMESTAMP", "LEASE_COUNT"])
def test_what_changes_is_refused_where_it_is_kept(use, function):
    with pytest.raises(ExpressionError, match=rf"{function} .* kept.*\n?.*queries: sow"):
        parse(f"{function}() > 1", use)

    assert parse(f"{function}() > 1", "query")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("text", ["SUM(/a)", "COUNT(*)", "[orders]./a"])
def test_what_views_say_is_refused_elsewhere(use, text):
    with pytest.raises(ExpressionError, match="views"):
        parse(text, use)


@pytest.mark.parametrize(
    ("text", "expected", "path"),
    [
        ("SUM(/a * /b) AS /total", ["agg", "SUM", ["*", A, B]], ("total",)),
        ("COUNT(*) AS /n", ["agg", "COUNT", ["n", 1]], ("n",)),
        ("[orders]./a/b AS /x/y", ["t", "orders", "a", "b"], ("x", "y")),
        ("/a as [/unit price]", A, ("unit price",)),
        ("/a", A, ("a",)),
        ("[eu/orders]./a/b", ["t", "eu/orders", "a", "b"], ("a", "b")),
    ],
)
def test_a_projection_has_an_expression_and_a_path(text, expected, path):
    projection = parse_projection(text)

    assert json.loads(projection.expression.json) == expected
    assert projection.path == path


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("SUM(/a)", 8, "write AS /path"),
        ("/a AS", 6, "a field"),
        ("/a AS total", 7, "a field"),
        ("/a AS /b[0]", 7, "no subscripts"),
        ("/a[0]", 1, "no subscripts"),
        ("/a AS [t]./b", 7, "without a topic"),
        ("SUM(1 + AVG(/a)) AS /x", 9, "not nested"),
        ("SUM(/a, /b) AS /x", 1, "takes 1 argument, not 2"),
        ("SUM(*) AS /x", 5, "COUNT(*)"),
        ("UNIX_TIMESTAMP() AS /x", 1, "views are kept"),
        ("SUMM(/a) AS /x", 1, "did you mean SUM"),
    ],
)
def test_a_wrong_projection_is_refused(text, column, part):
    with pytest.raises(ExpressionError) as refusal:
        parse_projection(text)

    assert refusal.value.column == column
    assert part in str(refusal.value)


def test_aggregates_are_told_and_their_values_put_in():
    expression = parse_projection("SUM(/a) / COUNT(*) + SUM(/a) AS /x").expression

    assert [(name, operand.tree) for name, operand in expression.aggregates] == [
        ("SUM", ("f", "a")),
        ("COUNT", ("n", 1)),
    ]
    assert expression.value(Document(b"{}"), aggregates=[10, 4]) == 12


def test_fields_of_topics_are_read_from_their_documents():
    document = Document.of_topics({"orders": {"a": [1, 2]}, "customers": {"name": "Ann"}})

    assert parse_projection("[orders]./a AS /x").expression.value(document) == [1, 2]
    assert parse_projection("CONCAT([customers]./name, '!') AS /x").expression.value(document) == b"Ann!"
    assert parse_projection("[others]./a AS /x").expression.value(document) is None


def test_lark_is_imported_by_the_first_parse_only():
    program = (
        "import sys, ampsq.expressions; print('lark' in sys.modules, 'ampsq.expressions.automaton' in sys.modules)"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.split() == ["False", "False"]


def refused(read, *arguments):
    """The refusal, if there is one; anything else that is raised is a fault."""
    try:
        read(*arguments)
    except ExpressionError as refusal:
        return refusal
    return None


PIECES = st.sampled_from(
    [
        *KEYWORDS,
        *"()[]*%+-/,=<>!&|'\"\\#.",
        "/a",
        "/a[0]",
        "[/a b]",
        "[t]./a",
        "1",
        "1.5",
        "'x'",
        "r'x'",
        "UPPER(",
        "IF(",
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=12).map(" ".join) | st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30))
@example("(" * 8000)
@example("-" * 8000)
@example("NOT " * 2000 + "1")
@example("1" + "+1" * 4000)
@example("\ud800")
def test_any_text_is_an_expression_or_refused_in_words(text):
    for refusal in filter(None, [refused(parse, text, "query"), refused(parse_projection, text)]):
        assert 1 <= refusal.column <= len(text) + 1
        assert "None" not in refusal.reason
        assert not refusal.reason.rstrip().endswith("expected")
