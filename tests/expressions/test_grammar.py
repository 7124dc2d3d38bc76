"""Texts become trees: what means the same has the same tree, and whatever is written, the answer teaches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import short_and_whole
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ampsq.base.errors import DefinitionError, ExpressionError
from ampsq.expressions import Document, parse, parse_projection
from ampsq.expressions.syntax_errors import KEYWORDS

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
        ("SUM(/a AS /x", 8, "a bracket is not closed; write ) before AS"),
        ("(/a AS /x)", 5, "a bracket is not closed; write ) before AS"),
        ("SUM(/a) AS total", 12, "write /total"),
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


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        (r"/a LIKE '^\d+$'", 11, r"'\d' is 'd' in a text; write the pattern raw: r'^\d+$'"),
        (r"/a LIKE 'a\.b'", 11, r"'\.' is '.' in a text; write the pattern raw: r'a\.b'"),
        (r"/a LIKE '\bx'", 10, r"'\b' is a backspace in a text; write the pattern raw: r'\bx'"),
        (r"/a LIKE 'it\'s\.'", 15, "'\\.' is '.' in a text; write the pattern raw: r\"it's\\.\""),
        (r"REGEXP_REPLACE(/a, '(a)\1', '')", 24, r"'\1' is '1' in a text; write the pattern raw: r'(a)\1'"),
        (
            r"""/a LIKE '\'\"\.'""",
            14,
            r"'\.' is '.' in a text; write the pattern raw, as in r'\.', or the backslash twice: \\.",
        ),
    ],
)
def test_a_pattern_that_loses_a_backslash_is_refused(text, column, reason):
    with pytest.raises(ExpressionError) as refusal:
        parse(text, "query")

    assert (refusal.value.column, refusal.value.reason) == (column, reason)


@pytest.mark.parametrize("sign", [*"dDwWsSbBAZzp19", *".()[]{}+*?^$|-"])
def test_every_escape_of_patterns_needs_a_raw_text(sign):
    with pytest.raises(ExpressionError, match="write the pattern raw"):
        parse(rf"/a LIKE 'x\{sign}'", "query")
    assert parse(rf"/a = 'x\{sign}'", "query")


@pytest.mark.parametrize("pattern", [r"\\d", r"\x41\101", r"a\tb\n", r"it\'s", r"a\/b", r"10\%"])
def test_what_a_pattern_keeps_needs_no_raw_text(pattern):
    assert parse(f"/a LIKE '{pattern}'", "filter")


@pytest.mark.parametrize("use", ["filter", "barrier"])
@pytest.mark.parametrize("text", ["5", "'/a > 5'", "NULL", "NOT 1 = 2", "'a' = 'b'", "UPPER('a') = 'A'", "NAN_VALUE()"])
def test_what_says_the_same_of_every_message_is_refused(use, text):
    with pytest.raises(ExpressionError, match="same of every message"):
        parse(text, use)

    assert parse(text, "query")


@pytest.mark.parametrize("text", ["TRUE_VALUE()", "false_value()", "1 = 1", "1 = 0", "BOOKMARK()", "IF(/a, 1, 2)"])
def test_what_is_meant_for_every_message_is_allowed(text):
    assert parse(text, "filter")


@pytest.mark.parametrize("use", ["filter", "priority", "barrier"])
@pytest.mark.parametrize(
    ("text", "column", "advice"),
    [
        ("/a = NULL", 4, "write /a IS NULL"),
        ("NULL = /a", 6, "write /a IS NULL"),
        ("/a/b <> NULL", 6, "write /a/b IS NOT NULL"),
        ("/b AND /a < NULL", 11, "write /a IS NULL"),
        ("/a IN (NULL)", 4, "write /a IS NULL"),
        ("UPPER(/a) = NULL", 11, "write /a IS NULL"),
    ],
)
def test_a_comparison_with_null_is_refused_where_it_is_kept(use, text, column, advice):
    with pytest.raises(ExpressionError, match=advice) as refusal:
        parse(text, use)

    assert refusal.value.column == column
    assert parse(text, "query")


@pytest.mark.parametrize(
    ("text", "column", "advice"),
    [
        ("/x CONTAINS 'a'", 4, "INSTR(/x, 'a') > 0"),
        ("/x NOT CONTAINS 'a'", 8, "INSTR(/x, 'a') > 0"),
        ("/x.contains('a')", 12, "no methods"),
        ("/x STARTS WITH 'a'", 4, "BEGINS WITH"),
        ("starts_with(/x, 'a')", 1, "BEGINS WITH"),
        ("/x MATCHES 'a'", 4, "LIKE"),
        ("/x ILIKE 'a'", 4, "LIKE '(?i)a'"),
        ("/x =~ 'a'", 5, "no =~; write LIKE"),
        ("/x !~ 'a'", 4, "NOT LIKE"),
        ("/x ** 2", 5, "no power"),
        ("/x // 2", 4, "no //"),
        ("//x", 1, "one slash"),
        ("/x/*/y", 3, "entered by themselves"),
        ("/x[*]", 3, "entered by themselves"),
        ("/x['y']", 3, "names follow slashes"),
        ("CASE WHEN /x THEN 1 END", 1, "IF(condition, then, else)"),
        ("/a if /b else /c", 4, "IF(condition, then, else)"),
        ("SELECT /x", 1, "only the condition"),
        ("/x = 1 LIMIT 5", 8, "leave LIMIT out"),
        ("$.a.b > 1", 1, "write /a/b"),
        ("$['a']", 1, "begins with a slash"),
        ("a.b > 1", 1, "/a/b"),
        ("/x = 1;", 7, "leave ; out"),
        ("/x = 1 -- all of it", 11, "leave out --"),
        ("/x = 1 # all", 8, "leave out #"),
        ("/* all */ /x = 1", 1, "leave out /*"),
        ("/x = ‘a’", 6, "straight quotes"),  # noqa: RUF001
        ("`x` = 1", 1, "straight quotes"),
        ("/x ≥ 1", 4, "write >="),
        ("/x\xa0= 1", 3, "no-break space"),
        ("/préis > 1", 4, "[/préis]"),
        ("/a/é > 1", 3, "[/a/é]"),
        ("préis > 1", 1, "[/préis]"),
        ("/a$b > 1", 3, "[/a$b]"),
        ("/unit price > 1", 7, "[/unit price]"),
        ("/unit price each AND /b", 7, "[/unit price each];"),
        ("/x IN [1, 2]", 7, "round brackets"),
        ("/x IN {1, 2}", 7, "round brackets"),
        ("'IBM' in /tags", 10, "write /tags = 'IBM'"),
        ("'IBM' not in /tags", 14, "write NOT /tags = 'IBM'"),
        ("/x = TRUE", 6, "write 1, or only the field"),
        ("/x IS FALSE", 7, "NOT /active"),
        ("/x = 'O'Neil'", 9, "write \\'"),
        ("/x = 'O''Neil'", 9, "not two"),
        ("/x = b'y'", 6, "only r"),
        ("/x = 10k", 8, "numbers are written"),
        ("now() > 1", 1, "UNIX_TIMESTAMP()"),
        ("!/x", 1, "no !; write NOT"),
        ("/x && /y", 4, "no &&; write AND"),
        ("/x || /y", 4, "write OR"),
        ("/x is None", 7, "IS NULL"),
        ("/x = None", 6, "IS NULL"),
        ("/x === 1", 6, "write ="),
        ("/x ? 1 : 2", 4, "IF(condition, then, else)"),
        ("/x ?? 1", 4, "COALESCE"),
        ("CAST(/x AS INT)", 9, "no CAST"),
        ("ARRAY(/x)", 1, "did you mean ARRAY_SUM, ARRAY_MIN or ARRAY_MAX?"),
        ("SUBSTRING(/x, 1)", 1, "SUBSTR("),
    ],
)
def test_words_of_other_languages_have_their_own_advice(text, column, advice):
    with pytest.raises(ExpressionError) as refusal:
        parse(text, "query")

    assert refusal.value.column == column
    assert advice in refusal.value.reason


GUIDE = (
    Path(__file__).parents[2].joinpath("docs", "expressions.md").read_text(encoding="utf-8").split("\n## The text")[0]
)
MESSAGE = Document(re.search(r"```json\n(.*?)```", GUIDE, re.DOTALL)[1].encode(), now=1_700_000_000_000)


def spans(cell):
    return re.findall(r"`([^`]+)`", cell.replace(r"\|", "|"))


def rows_of(heading):
    """The cells of a table's rows, which is the first behind a text of the guide."""
    table = GUIDE.split(heading, 1)[1].split("|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.strip().splitlines()]


def written(value):
    return "NULL" if value is None else value.decode() if isinstance(value, bytes) else str(value)


EXAMPLES = rows_of("these ten give")
TRIALS = rows_of("### Results that surprise")
MEANT = rows_of("### From SQL and Python")


@pytest.mark.parametrize(("expression", "gives", "_"), EXAMPLES + TRIALS)
def test_the_guide_gives_what_it_says(expression, gives, _):
    assert len(EXAMPLES) == 10
    assert [written(parse(text, "query").value(MESSAGE)) for text in spans(expression)] == [gives.strip()]


@pytest.mark.parametrize(("wrong", "says", "right"), MEANT)
def test_the_guide_translates_from_sql_and_python(wrong, says, right):
    gives, where = re.search(r"gives (\w+)", says), re.search(r"refused in (\w+)s", says)
    use = where[1] if where else "query"
    for text in spans(wrong):
        refusal = refused(parse, text, use)
        if gives:
            assert written(parse(text, "query").value(MESSAGE)) == gives[1], text
        else:
            assert refusal, text
            assert "; expected a" not in refusal.reason
    for text in spans(right):
        assert parse(text, "query").value(MESSAGE) is not None, text


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


def is_an_expression_or_refused_in_words(text):
    for refusal in filter(None, [refused(parse, text, "query"), refused(parse_projection, text)]):
        assert 1 <= refusal.column <= len(text) + 1
        assert "None" in text or "None" not in refusal.reason
        assert not refusal.reason.rstrip().endswith("expected")


@short_and_whole("examples", 150, 600)
def test_any_text_is_an_expression_or_refused_in_words(examples):
    pieces = st.lists(PIECES, max_size=12)
    # Made anew for each run: settings are given once.
    texts = pieces.map(" ".join) | pieces.map("".join) | st.text(max_size=30)
    holds = given(texts)(is_an_expression_or_refused_in_words)
    for text in ("(" * 8000, "-" * 8000, "NOT " * 2000 + "1", "1" + "+1" * 4000, "\ud800"):
        holds = example(text)(holds)
    settings(max_examples=examples)(holds)()
