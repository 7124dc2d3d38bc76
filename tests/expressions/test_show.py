"""Round trip of a tree through its text: it is parsed again to the same tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampsq.base.errors import ExpressionError
from ampsq.expressions import parse, parse_projection
from ampsq.expressions.unparse import PATTERN, show

CASES = json.loads(Path(__file__).with_name("vectors.json").read_text())


def test_every_case_of_the_table_is_shown_as_a_text_that_means_it():
    shown, patterns, wrong = 0, 0, []
    for case in CASES:
        try:
            expression = parse(case["text"], case.get("use", "query"))
        except ExpressionError:
            continue
        # As the server gives it: lists instead of tuples.
        text = show(json.loads(expression.json))
        if PATTERN in text:
            patterns += 1
        elif parse(text, "query").tree != expression.tree:
            wrong.append((case["text"], text))
        else:
            shown += 1
    assert wrong == []
    assert shown > 100 * patterns


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/price>10 and /symbol = 'IBM'", "/price > 10 AND /symbol = 'IBM'"),
        ("/a = 1 OR (/b = 2 AND NOT (/c = 3))", "/a = 1 OR /b = 2 AND NOT /c = 3"),
        ("(/a = 1 OR /b = 2) AND /c <> 3", "(/a = 1 OR /b = 2) AND /c != 3"),
        ("/a - (/b - /c) * -2", "/a - (/b - /c) * -2"),
        ("-(/a / 2) % 3", "-(/a / 2) % 3"),
        ("NOT /a IS NULL", "/a IS NOT NULL"),
        ("/a NOT IN (1, 2.5, NULL)", "/a NOT IN (1, 2.5, NULL)"),
        ("/a NOT BETWEEN 1 AND /b + 1", "/a NOT BETWEEN 1 AND /b + 1"),
        ("/a LIKE 'b.c'", "/a LIKE 'b.c'"),
        (r"/a NOT LIKE r'b\.c'", r"/a NOT LIKE r'b\.c'"),
        ("/a LIKE '^b'", "/a BEGINS WITH 'b'"),
        ("/a ENDS WITH ('x', 'y')", "/a ENDS WITH ('x', 'y')"),
        ("/a BEGINS WITH /b", "/a BEGINS WITH (/b)"),
        ("[/odd name/b]/c[0]", "[/odd name]/b/c[0]"),
        ("[/a/b c/d]", "[/a/b c]/d"),
        (r"'it\'s' = /a", r"'it\'s' = /a"),
        (r"'\xff\n' = /a", r"'\xff\x0a' = /a"),
        ("'a\\nü' = /a", "'a\\nü' = /a"),
        ("if(/a, upper(/b), 'c') = 'D'", "IF(/a, UPPER(/b), 'c') = 'D'"),
        ("REGEXP_REPLACE(/a, 'b+', 'c') = 'c'", "REGEXP_REPLACE(/a, <pattern>, 'c') = 'c'"),
        ("(/a = 1) = (/b = 2)", "(/a = 1) = (/b = 2)"),
    ],
)
def test_it_is_shown_as_people_write_it(text, shown):
    assert show(parse(text, "filter").tree) == shown


@pytest.mark.parametrize("text", ["SUM(/a) / COUNT(*)", "[orders]./a + MAX(/b)", "[orders].[/a b]/c"])
def test_projections_are_shown_too(text):
    expression, _ = parse_projection(f"{text} AS /x")
    assert show(expression.tree) == text
    assert parse_projection(f"{show(expression.tree)} AS /x")[0].tree == expression.tree
