"""Patterns: what they match, against Python's own engine; the two kinds of automata and Lua against each other."""
# Long: one automaton, in Python and in Lua, beside the search of Python: its cases are shared.

from __future__ import annotations

import importlib
import json
import random
import re
import string
import time
from pathlib import Path

import pytest
from cases import seeds

from ampsq.expressions.automaton import Automaton, Literal, PatternError, compile_pattern

LIB = Path(__file__).parents[2] / "lua/expressions/lib"
BUDGET = 20_000


class TooMany(Exception):
    pass


class Steps:
    def __init__(self, left=BUDGET):
        self.left = left

    def spend(self, count):
        self.left -= count
        if self.left < 0:
            raise TooMany


def seeded(number):
    return random.Random(number)  # noqa: S311 - no secrets


def found(pattern, text, **options):
    compiled = compile_pattern(pattern, **options)
    if isinstance(compiled, Literal):
        begins, ends = not compiled.at_start or text.startswith(compiled.text), text.endswith(compiled.text)
        return begins and (ends or not compiled.at_end) and compiled.text in text
    return compiled.search(text, Steps())


def automaton(pattern, **options):
    compiled = compile_pattern(pattern, **options)
    return compiled if isinstance(compiled, Automaton) else None


def replaced(pattern, text, replacement=b"*", limit=65_536):
    return automaton(pattern, replace=True).replace(text, replacement, Steps(), limit)


# Syntax


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (b"abc", Literal(b"abc", at_start=False, at_end=False)),
        (b"", Literal(b"", at_start=False, at_end=False)),
        (b"^abc", Literal(b"abc", at_start=True, at_end=False)),
        (rb"\Aabc", Literal(b"abc", at_start=True, at_end=False)),
        (b"(?A)abc", Literal(b"abc", at_start=True, at_end=False)),
        (rb"abc\z", Literal(b"abc", at_start=False, at_end=True)),
        (rb"a\.(b[c])\x00", Literal(b"a.bc\0", at_start=False, at_end=False)),
        (b"(?i)1-2", Literal(b"1-2", at_start=False, at_end=False)),
        (b"(?x) a b # and c\n c", Literal(b"abc", at_start=False, at_end=False)),
    ],
)
def test_plain_text_needs_no_automaton(pattern, literal):
    assert compile_pattern(pattern) == literal


@pytest.mark.parametrize("pattern", [b"abc$", rb"abc\Z", b"(?m)^abc", rb"^abc\z", b"(?i)abc", b"a.c"])
def test_what_only_looks_like_plain_text_is_none(pattern):
    assert automaton(pattern)


def test_to_replace_even_plain_text_is_an_automaton():
    assert replaced(b"abc", b"xabcabx") == b"x*abx"


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (b"abc$", [b"abc", b"abc\n"], [b"abc\n\n", b"abcd"]),
        (rb"abc\Z", [b"abc", b"abc\n"], [b"abc\n\n", b"abcd"]),
        (rb"(?m)abc\Z", [b"abc", b"abc\n"], [b"abc\nd"]),
        (rb"abc\z", [b"abc"], [b"abc\n"]),
        (b"(?m)abc$", [b"abc", b"abc\n", b"abc\nd"], [b"abcd"]),
        (b"(?m)^b", [b"b", b"a\nb"], [b"ab"]),
        (b"(?m)^$", [b"", b"\n", b"a\n\nb"], [b"a\n"]),
        (rb"(?m)\A\n^\z", [], [b"\n"]),
        (b"a.b", [b"a-b", b"a\xffb"], [b"a\nb"]),
        (b"(?s)a.b", [b"a\nb"], []),
        (b"(?i)aB[c-e]", [b"AbD", b"abE"], [b"abf"]),
        (b"(?i)[^a]", [b"b"], [b"A", b"a"]),
        (b"(?A)b", [b"ba"], [b"ab"]),
        (b"(?A)a|b", [b"b", b"a"], [b"cb"]),
        (b"(?U)a.*b", [b"axxb"], []),
        (b"(?sAi)(?U)a.b", [b"A\nB"], [b"cA\nB"]),
        (b"(?i:a)b", [b"Ab"], [b"AB"]),
        (b"(?x: [ ] a # b ] \\Z [[:alpha:]]\n)c", [b" ac"], [b"ac"]),
        (b"(?#comment [[:a:]])a", [b"a"], [b"b"]),
        (rb"\bfoo\b", [b"a foo.", b"foo"], [b"food", b"_foo"]),
        (rb"\B", [b"", b"aa", b"-"], [b"a"]),
        (b"[]a]", [b"]"], [b"b"]),
        (b"[^]a]", [b"b"], [b"]a"]),
        (b"[[]", [b"["], [b"]"]),
        (rb"[\]\x41-\x43]", [b"]", b"B"], [b"D"]),
        (rb"\101\0", [b"A\0"], [b"A"]),
        (b"a{,2}b{2,}$", [b"bb", b"aabbb"], [b"ab"]),
        (b"a{,x", [b"a{,x"], [b"a"]),
        (rb"\d\D\s\S\w\W", [b"1a b_-"], [b"1a bb_"]),
        (b"(?P<name>a)+?b??$", [b"aab", b"a"], [b"b"]),
        (b"(a|)+b", [b"b"], [b"a"]),
        ("é".encode(), ["né".encode()], [b"\xc3"]),
    ],
)
def test_what_patterns_mean(pattern, matching, other):
    for options in ({}, {"max_table": 0}):
        assert [text for text in matching if not found(pattern, text, **options)] == []
        assert [text for text in other if found(pattern, text, **options)] == []


@pytest.mark.parametrize(
    ("pattern", "position", "word"),
    [
        (rb"(a)\1", 3, "back reference"),
        (rb"(?P<a>b)(?P=a)", 8, "back reference"),
        (rb"(a)\g{1}", 3, "back reference"),
        (b"a(?=b)", 1, "look-ahead"),
        (b"a(?!b)", 1, "look-ahead"),
        (b"(?<=b)a", 0, "look-behind"),
        (b"(?<!b)a", 0, "look-behind"),
        (b"(a)(?(1)b)", 3, "condition"),
        (b"(?>a)b", 0, "atomic"),
        (b"a*+b", 1, "possessive"),
        (b"a{2}+b", 1, "possessive"),
        (b"ab[x[:alpha:]]", 4, r"POSIX class \[:alpha:\]"),
        (b"(ab", 0, "unterminated"),
        (b"ab)", 2, "unbalanced"),
        (b"(?i)ab)", 6, "unbalanced"),
        (rb"\Z\Zab)", 6, "unbalanced"),
        (b"[a", 0, "unterminated"),
        (b"a**", 2, "needs a group"),
        (rb"ab\Qc\E", 2, r"bad escape \\Q.*allowed"),
        (b"ab(?i)c", 2, r"\(\?i:...\)"),
        (b"(?iL)c", 3, "unknown flag 'L'"),
        (b"(?<n>a)", 1, "unknown extension"),
        (b"a\\", 1, "end of pattern"),
        (b"a{3,2}", 2, "min repeat"),
        (b"x" + b"(" * 101, 101, "nested deeper than 100"),
        (b"(?:a{100}){100}", 0, "more than 2,000 states"),
        (b"a{99999999999}", 0, "too large"),
    ],
)
def test_what_is_refused_says_where_and_why(pattern, position, word):
    with pytest.raises(PatternError, match=word) as refusal:
        compile_pattern(pattern)

    assert refusal.value.position == position
    assert f"at byte {position + 1} of" in str(refusal.value)


def test_what_is_refused_is_not_refused_where_it_is_text():
    for pattern in (rb"\(\?=b", b"[(?=]", rb"[\]*+]", b"[a]:]", rb"\\1", b"(?x)a#(?=b)", rb"a\*+", b"a{}+"):
        compile_pattern(pattern)


def test_the_parser_of_this_python_speaks_as_expected():
    parser = importlib.import_module("re._parser")
    syntax = parser.parse(rb"a[^b-d\w]|(?i:.)x{2,}y*?\b\B^$\A\Z[^z]", 0)

    assert {name for name in dir(parser) if name in {"MAXREPEAT", "parse"}} == {"MAXREPEAT", "parse"}
    assert [str(operator) for operator, _ in syntax] == ["BRANCH"]
    (left, right) = syntax[0][1][1]
    assert [str(operator) for operator, _ in left] == ["LITERAL", "IN"]
    assert [(str(operator), str(value)) for operator, value in left[1][1]] == [
        ("NEGATE", "None"),
        ("RANGE", "(98, 100)"),
        ("CATEGORY", "CATEGORY_WORD"),
    ]
    assert [(str(operator), str(value)) for operator, value in right] == [
        ("SUBPATTERN", "(None, 2, 0, [(ANY, None)])"),
        ("MAX_REPEAT", "(2, MAXREPEAT, [(LITERAL, 120)])"),
        ("MIN_REPEAT", "(0, MAXREPEAT, [(LITERAL, 121)])"),
        ("AT", "AT_BOUNDARY"),
        ("AT", "AT_NON_BOUNDARY"),
        ("AT", "AT_BEGINNING"),
        ("AT", "AT_END"),
        ("AT", "AT_BEGINNING_STRING"),
        ("AT", "AT_END_STRING"),
        ("NOT_LITERAL", "122"),
    ]
    assert right[1][1][2].getwidth() == (1, 1)
    assert syntax.state.flags & re.IGNORECASE == 0


# Against Python's engine

LETTERS = b"abA_ -\n1"
ATOMS = [*(re.escape(bytes([letter])) for letter in LETTERS), b".", rb"\w", rb"\W", rb"\s", rb"\d", b"[ab]", b"[^a]"]
ATOMS += [rb"[^\n\w]", b"[A-b]", rb"[\S\n]"]
# Ours, and the same as Python 3.11 has it.
PLACES = [
    (b"^", b"^", rb"(?:\A|(?<=\n)(?!\Z))"),
    (b"$", b"$", b"$"),
    (rb"\A", rb"\A", rb"\A"),
    (rb"\Z", b"(?-m:$)", b"(?-m:$)"),
    (rb"\z", rb"\Z", rb"\Z"),
    (rb"\b", rb"\b", rb"\b"),
    (rb"\B", rb"(?!\b)", rb"(?!\b)"),
]


def random_pattern(rng, depth=3, *, lines=False):
    """A pattern in our words and in Python's. No repeat is within another, so that Python's engine stays quick."""

    def atom(depth):
        kind = rng.random()
        if kind < 0.2:
            ours, plain, by_lines = rng.choice(PLACES)
            return ours, by_lines if lines else plain
        if kind < 0.45 and depth:
            ours, theirs = branches(depth - 1)
            head = rng.choice([b"(", b"(?:", b"(?i:", b"(?s:"])
            return head + ours + b")", head + theirs + b")"
        one = rng.choice(ATOMS)
        return one, one

    def piece(depth):
        ours, theirs = atom(depth)
        if rng.random() < 0.3 and not re.search(rb"[*+?}](?!:)", re.sub(rb"\(\?[-mis:!<=]+", b"", theirs)):
            again = rng.choice([b"*", b"+", b"?", b"*?", b"{2}", b"{1,3}", b"{2,}", b"{0,2}?"])
            return b"(?:" + ours + b")" + again, b"(?:" + theirs + b")" + again
        return ours, theirs

    def branches(depth):
        parts = [[piece(depth) for _ in range(rng.randint(0, 3))] for _ in range(rng.choice([1, 1, 2, 3]))]
        return tuple(b"|".join(b"".join(pair[side] for pair in part) for part in parts) for side in (0, 1))

    return branches(depth)


def random_case(rng):
    flags = "".join(flag for flag in "ims" if rng.random() < 0.25)
    ours, theirs = random_pattern(rng, lines="m" in flags)
    head = f"(?{flags})".encode() if flags else b""
    texts = [bytes(rng.choices(LETTERS, k=rng.randint(0, 9))) for _ in range(12)]
    return head + ours, head + theirs, [b"", b"\n", b"a\n", *texts]


def used(work):
    """The result of some work, and its steps."""
    steps = Steps()
    return work(steps), BUDGET - steps.left


@seeds(10, soon=1)
def test_a_search_finds_what_python_finds(seed):
    rng = seeded(seed)
    for _ in range(200):
        ours, theirs, texts = random_case(rng)
        oracle = re.compile(theirs)
        expected = [bool(oracle.search(text)) for text in texts]
        for options in ({}, {"max_table": 0}):
            assert [found(ours, text, **options) for text in texts] == expected, (ours, texts)


def longest_of(theirs, text, start):
    for end in range(len(text), start - 1, -1):
        if re.compile(b"%s(?:%s)(?=[\\s\\S]{%d}\\Z)" % (*split_flags(theirs), len(text) - end)).match(text, start):
            return end
    return None


def split_flags(theirs):
    head = re.match(rb"(?:\(\?[ims]+\))?", theirs)[0]
    return head, theirs[len(head) :]


@seeds(6, soon=1)
def test_the_longest_match_at_each_place(seed):
    rng = seeded(seed)
    for _ in range(40):
        ours, theirs, texts = random_case(rng)
        forms = [automaton(ours, replace=True), automaton(ours, replace=True, max_table=0)]
        for text in texts[:6]:
            expected = [longest_of(theirs, text, start) for start in range(len(text) + 1)]
            for form in forms:
                assert [form.longest(text, start, Steps()) for start in range(len(text) + 1)] == expected, (ours, text)
            assert forms[0].replace(text, b"<>", Steps(), 99) == replaced_by(expected, text, b"<>")
            assert forms[1].replace(text, b"<>", Steps(), 99) == replaced_by(expected, text, b"<>")


def replaced_by(longest, text, replacement):
    out, start = b"", 0
    while start < len(text):
        end = longest[start]
        if end is None or end == start:
            out, start = out + text[start : start + 1], start + 1
        else:
            out, start = out + replacement, end
    return out


@pytest.mark.parametrize(
    ("pattern", "text", "result"),
    [
        (b"b*", b"abba", b"a*a"),
        (b"a|ab|abc", b"abcab", b"**"),
        (rb"\d+", b"1 22 333", b"* * *"),
        (rb"^\w", b"ab", b"*b"),
        (rb"(?m)^\w", b"ab\nc", b"*b\n*"),
        (rb"\w$", b"ab\n", b"a*\n"),
        (rb"\bb", b"b bb", b"* *b"),
        (rb"\s+\Z", b"a \n", b"a*"),
        (b"", b"ab", b"ab"),
        (b"x", b"", b""),
    ],
)
def test_replacing(pattern, text, result):
    assert replaced(pattern, text) == result


def test_a_result_over_the_limit_is_none():
    assert replaced(b"a", b"aab", b"123", limit=7) == b"123123b"
    assert replaced(b"a", b"aab", b"123", limit=6) is None


# Steps


@pytest.mark.parametrize(
    ("pattern", "text", "steps"),
    [
        (b"a.c", b"xxabcxxx", 5),
        (b"a.c", b"xxxx", 4),
        (b"^a.c", b"xxxx", 1),
        (b"a.c$", b"abc\n", 4),
        (b"x*", b"aaaa", 0),
    ],
)
def test_a_deterministic_search_costs_the_bytes_that_it_looks_at(pattern, text, steps):
    assert used(lambda left: automaton(pattern).search(text, left))[1] == steps


def test_sets_of_instructions_cost_their_number_at_each_byte():
    # Always the `a` at the start, and one more for each `a` among the last four bytes: three steps each, ten at first.
    form = automaton(b"a.{3}b", max_table=0)

    assert used(lambda left: form.search(b"xxx", left)) == (False, 10 + 3 * 3)
    assert used(lambda left: form.search(b"axx", left)) == (False, 10 + 3 * (1 + 2 + 2))
    assert used(lambda left: form.search(b"aaxxb", left)) == (True, 10 + 3 * (1 + 2 + 3 + 3 + 3))
    assert used(lambda left: form.search(b"axxxbaaaaa", left)) == (True, 10 + 3 * (1 + 2 + 2 + 2 + 2))


@pytest.mark.parametrize("options", [{}, {"max_table": 0}])
def test_too_many_steps_raise(options):
    form = automaton(b"(?:ab)+c", **options)
    text = b"ab" * 1_000
    _, steps = used(lambda left: form.search(text, left))

    assert form.search(text, Steps(steps)) is False
    with pytest.raises(TooMany):
        form.search(text, Steps(steps - 1))


def test_replacing_costs_four_steps_where_nothing_can_begin():
    form = automaton(b"^a", replace=True)

    assert used(lambda left: form.replace(b"bbbbb", b"", left, 9)) == (b"bbbbb", 4 * 5)


# In Lua

DRIVER = """
local object, out = load_automaton(cjson.decode(ARGV[1])), {}
for i = 4, #ARGV do
  local steps = {left = tonumber(ARGV[2])}
  local ok, result
  if ARGV[3] == 'search' then
    ok, result = pcall(automaton_search, object, ARGV[i], steps)
    if ok then result = result and 1 or 0 end
  elseif ARGV[3] == 'longest' then
    ok, result = true, {}
    for start = 0, #ARGV[i] do
      steps = {left = tonumber(ARGV[2])}
      local longest = automaton_longest(object, ARGV[i], start, steps)
      result[#result + 1] = longest or -1
      result[#result + 1] = steps.left
    end
  else
    ok, result = pcall(automaton_replace, object, ARGV[i], '<>', steps, tonumber(ARGV[3]))
  end
  if not ok then
    if result ~= steps then error(result) end
    result, steps.left = 'over', -1
  end
  out[#out + 1] = {result or false, steps.left}
end
return out
"""


@pytest.fixture
def lua(server):
    """Run a verb of automaton.lua over texts: ``lua(form, verb, texts, budget)`` gives [result, steps left] each."""
    source = "".join((LIB / f"{name}.lua").read_text() for name in ("automaton_subsets", "automaton")) + DRIVER
    with server.client() as client:
        sha = client.script_load(source)

        def run(form, verb, texts, budget=BUDGET):
            tree = json.dumps(form.tree, separators=(",", ":"))
            return client.evalsha(sha, 0, tree, budget, verb, *texts)

        yield run


@seeds(4, soon=1)
def test_lua_searches_as_python_does(lua, seed):
    rng = seeded(seed)
    for _ in range(150):
        ours, _, texts = random_case(rng)
        for form in (automaton(ours), automaton(ours, max_table=0)):
            if form is None:
                continue
            answers = [used(lambda left, f=form, t=text: f.search(t, left)) for text in texts]
            assert lua(form, "search", texts) == [[int(yes), BUDGET - steps] for yes, steps in answers], (ours, texts)


@seeds(4, soon=1)
def test_lua_replaces_as_python_does(lua, seed):
    rng = seeded(seed)
    for _ in range(100):
        ours, _, texts = random_case(rng)
        for form in (automaton(ours, replace=True), automaton(ours, replace=True, max_table=0)):
            answers = [used(lambda left, f=form, t=text: f.replace(t, b"<>", left, 99)) for text in texts]
            assert lua(form, "99", texts) == [[text, BUDGET - steps] for text, steps in answers], (ours, texts)
            places = [
                [used(lambda left, f=form, t=text, s=start: f.longest(t, s, left)) for start in range(len(text) + 1)]
                for text in texts
            ]
            expected = [
                [part for end, steps in place for part in (-1 if end is None else end, BUDGET - steps)]
                for place in places
            ]
            assert [result for result, _ in lua(form, "longest", texts)] == expected, (ours, texts)


@pytest.mark.parametrize("options", [{}, {"max_table": 0}])
@pytest.mark.parametrize("size", [1, 99, 100, 101, 200, 1_023, 1_024, 1_025, 2_049])
@pytest.mark.parametrize("ending", [b"", b"\n", b"ab\n"])
def test_lua_gives_up_at_the_very_step_that_python_does(lua, size, ending, options):
    text = (b"ab" * size)[:size] + ending
    for pattern, verb in ((rb"[^x]*xb$|aab\Z", "search"), (rb"\Bb$", "search"), (b"(?:ab)+\n|x", "99999")):
        form = automaton(pattern, replace=verb != "search", **options)

        def work(steps, form=form, verb=verb):
            return form.search(text, steps) if verb == "search" else form.replace(text, b"<>", steps, 99_999)

        try:
            result, steps = used(work)
        except TooMany:
            assert lua(form, verb, [text]) == [[b"over", -1]]
            continue
        assert lua(form, verb, [text], steps) == [[result, 0]]
        if steps:
            with pytest.raises(TooMany):
                work(Steps(steps - 1))
            assert lua(form, verb, [text], steps - 1) == [[b"over", -1]]


def test_lua_refuses_a_result_over_the_limit(lua):
    form = automaton(b"a", replace=True)

    assert [result for result, _ in lua(form, "5", [b"aab"])] == [b"<><>b"]
    assert [result for result, _ in lua(form, "4", [b"aab"])] == [None]


# What would be slow elsewhere

WORDS = ["".join(seeded(number).choices(string.ascii_letters, k=8)) for number in range(200)]
HARD = [
    b"a.{20}b",
    b"(a+)+$",
    b"(a|aa)*b",
    b"(x+x+)+y",
    b".*.*.*=.*",
    rb"\w{1,50}@\w{1,50}",
    "|".join(WORDS).encode(),
    "|".join(WORDS[:20]).encode(),
    b"(?i)" + "|".join(WORDS).encode(),
    b"(a?){500}b",
    b"(a?b?c?){300}z",
    b"(?:a?){600}" + b"a" * 600,
    b"[\\x00-\\xff]{1500}z",
    b"x*" * 600,
    rb"(\b|\B|a)*" * 200 + b"$",
    b"(.*a){20}",
    b"(?:a|b)*a(?:a|b){12}c",
    b"(" * 90 + b"a" + b"+)" * 90,
    b"|".join(b"[^%c]x" % byte for byte in range(0x61, 0x7B)),
]


@pytest.mark.parametrize("pattern", HARD, ids=lambda pattern: pattern[:20].decode())
@pytest.mark.parametrize("replace", [False, True])
def test_hard_patterns_compile_quickly_and_stay_small(pattern, replace):
    times = []
    for _ in range(3):
        start = time.process_time()
        form = automaton(pattern, replace=replace)
        times.append(time.process_time() - start)

    assert min(times) < 0.2
    assert len(json.dumps(form.tree)) < 20_000


@pytest.mark.parametrize("pattern", HARD, ids=lambda pattern: pattern[:20].decode())
def test_hard_patterns_are_searched_in_steps_that_the_text_and_the_pattern_bound(pattern):
    form, small = automaton(pattern), 100
    active = 3 * len(form.tree[2]) if form.tree[0] == 0 else 1
    for piece in (b"a", b"x", b"ab", b"=", b"a@"):
        for size in (small, 2 * small):
            steps = Steps(10**9)
            form.search(piece * size, steps)
            assert 10**9 - steps.left <= 10 + active * len(piece) * size


@pytest.mark.parametrize("pattern", HARD, ids=lambda pattern: pattern[:20].decode())
def test_lua_gives_up_early_on_hard_patterns(lua, pattern):
    text = b"aaaaaaaaaaaaaaaaaaab" * 2_000
    form = automaton(pattern)
    try:
        yes, steps = used(lambda left: form.search(text, left))
        expected = [[int(yes), BUDGET - steps]]
    except TooMany:
        expected = [[b"over", -1]]
    times = []
    while not times or (min(times) >= 0.2 and len(times) < 20):
        start = time.perf_counter()
        assert lua(form, "search", [text]) == expected
        times.append(time.perf_counter() - start)

    assert min(times) < 0.2


def test_a_pattern_compiles_to_the_same_tree_again():
    for pattern in HARD:
        assert automaton(pattern).tree == automaton(pattern).tree
        assert Automaton.from_tree(json.loads(json.dumps(automaton(pattern).tree))).tree == automaton(pattern).tree
