"""The composer: what it makes of the files in lua/, and what it refuses."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from cases import for_each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.base.errors import ScriptBug
from ampsq.protocol import schema, scripts
from ampsq.protocol.request import Call
from ampsq.protocol.scripts import ComposeError, compose

LUA = Path(scripts.__file__).parents[2] / "lua"


@cache
def composed(name, *, shebang=True):
    """One of those that are there, which many tests look at."""
    return compose(name, shebang=shebang)


def run(store, script, *arguments):
    return store.call(Call(script, arguments, lambda reply: reply))


# What all scripts have in common


@for_each("name", scripts.names())
@pytest.mark.parametrize("shebang", [True, False])
def test_every_script_composes_and_loads(store, name, shebang):
    script = composed(name, shebang=shebang)

    assert store.redis.script_load(script.source) == script.sha
    assert script.source.startswith("#!lua") is shebang


@for_each("name", scripts.names())
def test_every_script_says_what_it_does_and_gives(name):
    script = composed(name)

    assert script.meaning
    assert script.gives
    assert script.name == name
    assert script.sha == hashlib.sha1(script.source.encode()).hexdigest()  # noqa: S324
    assert len(script.where) == script.source.count("\n")


@for_each("name", scripts.names())
def test_the_fail_line_of_a_head_is_what_the_script_can_refuse_with(name):
    script = composed(name)

    reachable = set(re.findall(r"fail\('AMPSQ_(\w+)'", script.source))

    implied = {"FORMAT_MISMATCH"} - set(script.fails)
    assert set(script.fails) == reachable - implied
    # What upgrades looks at how far that is; `read_news` tells it of each instance.
    assert ("FORMAT_MISMATCH" in reachable) is ("upgrade" not in name and name != "read_news")


@for_each("name", scripts.names())
def test_nothing_is_left_to_fold_and_no_comment_travels(name):
    source = composed(name).source

    assert not re.search(r"\b[KFVE]\.\w", source)
    assert not re.search(r"^\s*--", source, re.MULTILINE)


@for_each("name", scripts.names())
def test_only_what_is_reached_is_composed(name):
    source = composed(name).source

    uses = Counter(re.findall(r"\w+", source))
    for function in re.findall(r"^local function (\w+)", source, re.MULTILINE):
        assert uses[function] > 1, function


def test_the_words_of_the_flags_are_on_the_first_line():
    assert compose("settle").source.startswith("#!lua flags=allow-oom\n")
    assert compose("read_stats").source.startswith("#!lua flags=no-writes,allow-oom\n")
    assert compose("publish").source.startswith("#!lua\n")


def test_what_makes_a_full_server_drain_may_run_on_one():
    must = {
        "advance_action",
        "end_wait",
        "heartbeat",
        "scan_foreign_entries",
        "open",
        "push_again",
        "settle",
        "sweep",
        "take",
        "unsubscribe",
    }

    assert {n for n in scripts.names() if "allow-oom" in composed(n).source.split("\n")[0]} >= must
    assert "allow-oom" not in compose("publish").source


def test_the_head_of_each_file_names_it():
    for path in LUA.rglob("*.lua"):
        assert path.read_text().startswith(f"--- {path.stem}: "), path.name


# How files become one script


def test_an_include_comes_once_however_often_it_is_reached(lua):
    lua("lib/base", "--- base: x.\nlocal function base()\n  return 1\nend\n")
    lua("lib/left", "--- left: x.\n--- @include base\nlocal function left()\n  return base()\nend\n")
    lua("lib/right", "--- right: x.\n--- @include base\nlocal function right()\n  return base()\nend\n")
    lua("verb", "--- verb: x.\n--- @include left, right, fail\nreturn left() + right()\n")

    functions = re.findall(r"^local function (\w+)", compose("verb").source, re.MULTILINE)

    assert Counter(functions) == Counter(["main", "base", "left", "right", "fail"])
    assert functions.index("base") < functions.index("left")


def test_a_nested_include_is_one_function_with_all_that_only_it_needs(lua, opened):
    lua("lib/shared", "--- shared: x.\nlocal function shared()\n  return 1\nend\n")
    lua("lib/own", "--- own: x.\nlocal count = {}\nlocal function own()\n  count.n = 40\n  return count.n\nend\n")
    lua("lib/deep", "--- deep: x.\n--- @include own\nlocal function reckon()\n  return own() + shared()\nend\n")
    lua(
        "lib/heavy",
        "--- heavy: x.\n--- @include shared, deep()\nlocal function total()\n  return deep().reckon()\nend\n",
    )
    lua("verb", "--- verb: x.\n--- @include shared, heavy(), fail\nreturn heavy().total() + shared()\n")

    script = compose("verb")

    functions = re.findall(r"^local function (\w+)", script.source, re.MULTILINE)
    assert [name for name in functions if name not in {"main", "fail"}] == [
        "shared",
        "heavy",
        "deep",
        "own",
        "reckon",
        "total",
    ]
    assert run(opened, script) == 42


def test_a_nest_with_the_name_of_a_function_is_refused(lua):
    lua("lib/a", "--- a: x.\nlocal function b()\n  return 1\nend\n")
    lua("lib/b", "--- b: x.\nlocal function f()\n  return 2\nend\n")
    lua("verb", "--- verb: x.\n--- @include a, b(), fail\nreturn b()\n")

    with pytest.raises(ComposeError, match=r"^lua/verb\.lua: b\(\) cannot be nested: b is defined as something else"):
        compose("verb")


def test_a_name_defined_in_two_includes_is_refused(lua):
    lua("lib/a", "--- a: x.\nlocal function f()\n  return 1\nend\n")
    lua("lib/b", "--- b: x.\nlocal function f()\n  return 2\nend\n")
    lua("verb", "--- verb: x.\n--- @include a, b, fail\nreturn f()\n")

    with pytest.raises(ComposeError, match=r"^lua/lib/b\.lua:2: f is defined twice"):
        compose("verb")


def test_a_cycle_is_refused_with_its_chain(lua):
    lua("lib/a", "--- a: x.\n--- @include b\nlocal function a()\n  return b()\nend\n")
    lua("lib/b", "--- b: x.\n--- @include c\nlocal function b()\n  return 1\nend\n")
    lua("lib/c", "--- c: x.\n--- @include a\nlocal function c()\n  return 1\nend\n")
    lua("verb", "--- verb: x.\n--- @include a, fail\nreturn a()\n")

    with pytest.raises(ComposeError, match=r"include cycle: verb -> lib/a -> lib/b -> lib/c -> lib/a"):
        compose("verb")


def test_a_missing_include_and_a_missing_script_are_refused(lua):
    lua("verb", "--- verb: x.\n--- @include nothing\nreturn 1\n")

    with pytest.raises(ComposeError, match=r"^lua/verb\.lua: no include has the name nothing$"):
        compose("verb")
    with pytest.raises(ComposeError, match=r"^lua/: no script has the name absent$"):
        compose("absent")


def test_a_script_is_known_by_its_verb_and_an_include_by_its_noun_whatever_their_rooms(lua):
    lua("farm/lib/cow", "--- cow: x.\nlocal function cow()\n  return 1\nend\n")
    lua("market/lib/stall", "--- stall: x.\n--- @include cow\nlocal function stall()\n  return cow()\nend\n")
    lua("market/sell", "--- sell: x.\n--- @include stall, fail\nreturn stall()\n")

    script = compose("sell")

    assert (script.name, scripts.names()) == ("sell", ["sell"])
    assert {place.partition(":")[0] for place in script.where} == {
        "lua/farm/lib/cow.lua",
        "lua/market/lib/stall.lua",
        "lua/market/sell.lua",
        "lua/lib/fail.lua",
    }


@pytest.mark.parametrize(("name", "other"), [("market/sell", "farm/sell"), ("market/lib/cow", "farm/lib/cow")])
def test_a_name_in_two_rooms_is_refused(lua, name, other):
    lua(name, "--- x: x.\n")
    lua(other, "--- x: x.\n")

    with pytest.raises(ComposeError, match=rf"^lua/{other}\.lua: lua/{name}\.lua has the same name$"):
        scripts.names()


def test_an_include_with_a_statement_of_its_own_is_refused(lua):
    lua("lib/part", "--- part: x.\nlocal function part()\n  return 1\nend\nredis.call('PING')\n")
    lua("verb", "--- verb: x.\n--- @include part, fail\nreturn part()\n")

    with pytest.raises(ComposeError, match=r"^lua/lib/part\.lua:5: an include holds functions"):
        compose("verb")


@pytest.mark.parametrize("wrong", ["K.laese('x')", "F.nothing", "V.never", "E.NO_SUCH_CODE"])
def test_an_unknown_name_is_refused_with_its_place(lua, wrong):
    lua("lib/part", f"--- part: x.\n\nlocal function part()\n  -- why\n  return {wrong}\nend\n")
    lua("verb", "--- verb: x.\n--- @include part, fail\nreturn part()\n")

    name = re.escape(wrong.split("(")[0])
    with pytest.raises(ComposeError, match=rf"^lua/lib/part\.lua:5: unknown name {name}$"):
        compose("verb")


def test_names_are_folded_to_what_the_schema_says(lua):
    lua(
        "verb",
        "--- verb: x.\n--- @include fail\nreturn {K.inbox('s1'), F.body, V.batch, V.lapsed, E.STALE_LEASE}\n",
    )

    source = compose("verb").source

    assert "return {(P .. ':s:' .. 's1' .. ':inbox'), 'b', 500, 'lapsed', 'AMPSQ_STALE_LEASE'}\n" in source


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("K.due()", "(P .. ':due')"),
        ("K.free(queue.name, V.none)", "(P .. ':q:' .. queue.name .. ':free:' .. 'none')"),
        ("K.log(topic_of({ref, 'a,b)'}))", "(P .. ':log:' .. topic_of({ref, 'a,b)'}))"),
        ("K.log(K.due()), K.due()", "(P .. ':log:' .. (P .. ':due')), (P .. ':due')"),
    ],
)
def test_a_key_is_spelled_where_it_is_used(lua, written, spelled):
    lua("verb", f"--- verb: x.\n--- FLAGS no-writes\n--- @include fail\nreturn {{{written}}}\n")

    assert f"return {{{spelled}}}\n" in compose("verb").source


@pytest.mark.parametrize("wrong", ["K.due", "K.log()", "K.log(a, b)", "K.log(a"])
def test_a_key_with_wrong_parameters_is_refused_with_its_place(lua, wrong):
    lua("verb", f"--- verb: x.\n--- @include fail\nreturn {wrong}\n")

    with pytest.raises(ComposeError, match=r"^lua/verb\.lua:3: "):
        compose("verb")


def test_texts_and_comments_are_not_folded(lua, opened):
    lua(
        "verb",
        "--- verb: x.\n--- @include fail\n"
        """return {'K.nothing', "F.body -- no comment", 'it\\'s V.batch', F.body} -- E.NOTHING at all\n""",
    )

    assert run(opened, compose("verb")) == [b"K.nothing", b"F.body -- no comment", b"it's V.batch", b"b"]


def test_arguments_are_bound_after_the_includes(lua, opened):
    lua("lib/part", "--- part: x.\nlocal function part()\n  return type(name)\nend\n")
    lua("verb", "--- verb: x.\n--- ARGV name, more...\n--- @include part, fail\nreturn {name, more_from}\n")
    lua("nosy", "--- nosy: x.\n--- ARGV name\n--- @include part, fail\nreturn part()\n")

    script = compose("verb")

    assert script.arguments == ("name", "more...")
    assert run(opened, script, "Ada", "x", "y") == [b"Ada", 2]
    with pytest.raises(ScriptBug, match=r"^lua/lib/part\.lua:3: "):
        run(opened, compose("nosy"), "Ada")


@pytest.mark.parametrize("shebang", [True, False])
def test_a_bug_shows_its_own_file_and_line(lua, opened, shebang):
    lua(
        "lib/part",
        "--- part: x.\n-- a comment\n\nlocal function part()\n  local t\n\n  -- here\n  return t.x\nend\n",
    )
    lua("verb", "--- verb: x.\n--- ARGV name\n--- @include part, fail\n\nlocal a = 1\nreturn part()\n")
    lua("late", "--- late: x.\n--- ARGV name\n--- @include fail\n\nlocal a = 1\nreturn nil .. name\n")

    with pytest.raises(ScriptBug, match=r"^lua/lib/part\.lua:8: "):
        run(opened, compose("verb", shebang=shebang), "Ada")
    with pytest.raises(ScriptBug, match=r"^lua/late\.lua:6: "):
        run(opened, compose("late", shebang=shebang), "Ada")


def test_a_failing_command_shows_its_line_too(lua, opened):
    lua(
        "verb",
        "--- verb: x.\n--- @include fail\n\ncall('SET', K.clock(), 'x')\ncall('INCR', K.clock())\nreturn 1\n",
    )

    with pytest.raises(ScriptBug, match=r"^lua/verb\.lua:5: "):
        run(opened, compose("verb"))


# The schema


@for_each("name", sorted(schema.KEYS))
def test_every_key_says_who_writes_empties_and_rebuilds_it(name):
    key = schema.KEYS[name]

    assert all((key.holds, key.writes, key.empties, key.rebuilds))
    assert key.type in ("string", "hash", "list", "set", "zset", "stream")
    assert key.suffix.startswith(":")


def test_no_two_keys_are_spelled_alike():
    shapes = Counter(re.sub(r"<\w+>", "<>", key.suffix) for key in schema.KEYS.values())

    assert set(shapes.values()) == {1}


def test_every_key_is_used():
    text = "\n".join(path.read_text() for path in LUA.rglob("*.lua"))

    # Markers of subscriptions to topics are their clients'.
    assert [name for name in schema.KEYS if f"K.{name}(" not in text] == ["marker"]


# The codec of refs, in Lua as in Python

PART = st.integers(0, 2**64 - 1).map(str)
NAME = st.from_regex(r"[A-Za-z0-9_./-]{1,40}", fullmatch=True)
CODEC = (LUA / "log/lib/ref.lua").read_text() + (
    "local topic, id = ARGV[1], ARGV[2]\n"
    "local make = ref_maker(topic)\n"
    "make('5-5')\nmake(id)\n"
    "local ref = ref_of(topic, id)\n"
    "local back, same = parse_ref(ref)\n"
    "return {ref, make(id), order_of(id), back, same}\n"
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(topic=NAME, milliseconds=PART, sequence=PART)
def test_a_ref_is_the_same_in_lua_and_in_python(valkey_store, topic, milliseconds, sequence):
    stream_id = f"{milliseconds}-{sequence}"
    ref = ref_of(topic, stream_id)

    made, made_again, order, back, same = valkey_store.redis.eval(CODEC, 0, topic, stream_id)

    assert made.decode() == made_again.decode() == ref
    assert order.decode() + "/" + topic == ref
    assert (back.decode(), same.decode()) == parse_ref(ref) == (topic, stream_id)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=2, max_size=8))
def test_refs_sort_as_their_ids_do(ids):
    refs = [ref_of("t", f"{milliseconds}-{sequence}") for milliseconds, sequence in ids]

    assert sorted(refs) == [ref_of("t", f"{milliseconds}-{sequence}") for milliseconds, sequence in sorted(ids)]


def test_threads_that_compose_at_once_do_not_disturb_each_other(monkeypatch):
    parsed = scripts._parse

    def parse_slowly(name, text):
        time.sleep(0.0005)  # another thread's turn, while a file is being read
        return parsed(name, text)

    monkeypatch.setattr(scripts, "_parse", parse_slowly)
    scripts._read.cache_clear()
    wanted = ["sweep", "take", "publish", "apply_log"] * 4

    with ThreadPoolExecutor(len(wanted)) as pool:
        composed = list(pool.map(compose, wanted))

    assert [one.name for one in composed] == wanted
