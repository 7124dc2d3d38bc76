"""Regular expressions over names: what they match, that they answer in time, and what is refused."""

from __future__ import annotations

import random
import re
import time

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.base.name_patterns import check_may_match, matches_name, parse_topic_or_pattern, pattern_of

LETTERS = "abA1_.-/"
ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\.", "^", "$", r"\b", r"\B", r"\A", "-", "_"]
LOOKS = ["(?=a)", "(?!a)", "(?!ab|b)", "(?<=a)", "(?<!b)", "(?<!ab)", "(?=.*b)", r"(?!.*\b-)", "(?=a(?!b))"]


def random_pattern(rng, depth=2):
    parts = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.2:
            parts.append(rng.choice(LOOKS))
        elif kind < 0.4 and depth:
            parts.append(f"({random_pattern(rng, depth - 1)})" + rng.choice(["", "?", "", "{1,2}"]))
        else:
            atom = rng.choice(ATOMS)
            is_place = atom in ("^", "$", r"\b", r"\B", r"\A")
            parts.append(atom + ("" if is_place else rng.choice(["", "", "*", "+", "?", "{2}", "*?"])))
    return "".join(parts) if rng.random() < 0.8 else f"{''.join(parts)}|{rng.choice(ATOMS)}"


@pytest.mark.parametrize("seed", range(4))
def test_a_pattern_finds_what_python_finds(seed):
    rng = random.Random(seed)  # noqa: S311
    for _ in range(300):
        text = rng.choice(["", "", "(?i)"]) + random_pattern(rng)
        names = ["".join(rng.choices(LETTERS, k=rng.randint(1, 8))) for _ in range(10)]
        oracle = re.compile(text)
        pattern = pattern_of(text)
        assert [pattern.search(name) for name in names] == [bool(oracle.search(name)) for name in names], (text, names)
        whole = pattern_of(text, whole=True)
        assert [whole.search(name) for name in names] == [bool(oracle.fullmatch(name)) for name in names], (text, names)
        # Looks are taken to hold: it may say yes where nothing matches, and never no where something does.
        assert pattern.may_match() or not any(oracle.search(name) for name in names), text


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "(a|a)*$b",
        "^(a|aa)+$",
        "^(.*)*$x",
        "^" + ".*" * 12 + "b$",
        "(a?){120}" + "a" * 120 + "b",
        "(?=(a+)+$)b",
        "^((?!(a*)*b).)*$c",
        "(?<!b)(a+)+$x",
        "(?:(?:a?){30}){30}b",
    ],
)
def test_no_pattern_and_no_name_make_a_process_hang(pattern):
    begun = time.process_time()
    assert not pattern_of(pattern).search("a" * 254 + "-")
    # Python's own takes for ever; a second is ten times what the slowest of these takes.
    assert time.process_time() - begun < 1


def test_a_list_of_a_thousand_names_is_a_pattern():
    names = [f"{number:04}-orders.of.one.customer" for number in range(1000)]
    pattern = pattern_of(f"^({'|'.join(map(re.escape, names))})$")

    assert all(map(pattern.search, names))
    assert not any(pattern.search(f"{name}s") for name in names)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"^(a)\1$", r"back reference \\1 cannot be matched in one pass; write out what it stands for, as in 'aa\|bb'"),
        ("(?P<x>a)(?P=x)", "back reference"),
        ("(?>a)b", "atomic group"),
        ("a*+b", "possessive"),
        ("(a)(?(1)b|c)", "condition"),
        ("(?<=a+)b", "a look-behind takes a pattern of one length"),
        ("(?!a)" * 21, "more than 20 look-aheads"),
        ("(?:a?){2001}", "more than 2,000 states"),
        ("a{50001}", "more than 50,000 states"),
        ("[[:alpha:]]", "POSIX class"),
        ("(", "missing"),
        ("", "names nothing"),
    ],
)
def test_what_is_refused_says_why_and_what_is_allowed(pattern, says):
    with pytest.raises(DefinitionError, match=says) as refused:
        pattern_of(pattern)

    assert "; allowed: a name (1 to 255 of the characters A-Z a-z 0-9 _ . / -) or a regular expression" in str(
        refused.value
    )


@pytest.mark.parametrize(
    "pattern", ["$(x)", "x^", "$x", "a$b", "^$", r"a\Bb\b-\B_", "#|ü", "a{256}", "(a b)+", "^(a^)$", r"\bé"]
)
def test_a_pattern_that_no_name_can_match_is_refused(pattern):
    with pytest.raises(
        DefinitionError, match=r"is not a name, and as a regular expression it matches none.*; allowed:"
    ):
        check_may_match(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(x)$",
        "$",
        "^",
        "^$|x",
        "(^|-)$",
        "(a b)*",
        "ü?later",
        "a{255}",
        "[ -b]",
        "$(?!x)",
        "(?!x)",
        r"\S",
        "(?i)ORDERS",
        "(" * 50 + "x" + ")" * 50,
    ],
)
def test_a_pattern_that_some_name_may_match_is_taken(pattern):
    check_may_match(pattern)


def test_a_name_matches_itself_alone():
    assert matches_name("orders.us", "orders.us")
    assert not matches_name("orders.us", "orders-us")
    assert matches_name(r"orders\.us", "my.orders.us")
    assert parse_topic_or_pattern("orders.us") == "orders.us"
    assert parse_topic_or_pattern("^orders") == "^orders"
