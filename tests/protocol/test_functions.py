"""Hot scripts as server functions: the same text in one library, whose variables are made anew in each call."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import library_hash
import pytest

from ampsq.base.errors import DefinitionError
from ampsq.protocol import functions, scripts
from ampsq.protocol.functions import HOT, PREFIX, are_used, library

LUA = Path(__file__).parents[2] / "lua"
#: A variable of an include, which keeps what a call has read.
VARIABLE = re.compile(r"^local (\w+) = \{\}$", re.MULTILINE)
KEPT = re.compile(r"^local (\w+) = \{\} -- kept over calls$", re.MULTILINE)
FORGOTTEN = re.compile(r"if next\((\w+)\) ~= nil then \1 = \{\} end")
DEFINED = re.compile(r"^local function (\w+)\(", re.MULTILINE)


def kept_names():
    return {name for file in LUA.rglob("*.lua") for name in KEPT.findall(file.read_text())}


def lines_by_place(text, where):
    """The lines of files, by where they stand there; a file's first line stands for what is composed for it."""
    lines = text.splitlines()
    return {place: line for line, place in zip(lines, where, strict=True) if not place.endswith(":1") and ":" in place}


@pytest.mark.parametrize("verb", HOT)
def test_the_library_has_each_line_of_each_script(verb):
    ours, script = library(), scripts.compose(verb)
    lines = lines_by_place(ours.source, ours.where)

    expected = lines_by_place(script.source, script.where)
    assert len(expected) > 1000
    assert expected.items() <= lines.items()
    # In the order of its file
    numbers = {}
    for place in lines:
        path, _, number = place.partition(":")
        numbers.setdefault(path, []).append(int(number))
    variables = {
        f"lua/{path.relative_to(LUA)}"
        for path in LUA.rglob("*.lua")
        if re.search(r"^local \w+ = \{\}", path.read_text(), re.MULTILINE)
    }
    for path in numbers.keys() - variables:
        assert numbers[path] == sorted(numbers[path])


def test_each_function_stands_in_the_library_once_whatever_scripts_and_nests_it_is_in():
    defined = DEFINED.findall(library().source)

    assert len(defined) == len(set(defined))
    assert len(defined) > 400


@pytest.mark.parametrize("verb", HOT)
def test_a_function_forgets_what_it_kept_before_each_call_but_what_its_include_says_is_right_in_all(verb):
    source = library().source
    forgotten_with_nests = source[
        source.index("local function forget_nested()") : source.index("redis.register_function")
    ]
    block = source[source.index(f"function_name = '{library().functions[verb]}'") :]
    begin = block[: block.index("local stored = ")]

    # What nests keep is forgotten once one was used, in whatever function
    assert "if nested then forget_nested() end" in begin
    forgotten = set(FORGOTTEN.findall(begin)) | set(FORGOTTEN.findall(forgotten_with_nests))
    script = scripts.compose(verb)
    lines = zip(script.source.splitlines(), script.where, strict=True)
    variables = {found[1] for line, place in lines if "/lib/" in place and (found := VARIABLE.match(line))}
    assert variables - kept_names() <= forgotten
    assert not forgotten & kept_names()
    assert len(variables) > 5


def test_each_nest_tells_that_it_was_used():
    nests = re.findall(r"^nests\.\w+ = .*$", library().source, re.MULTILINE)

    assert len(nests) > 10
    for line in nests:
        assert re.fullmatch(r"nests\.(\w+) = function\(\) nested = true return libs\.\1 end", line)


def test_an_include_keeps_over_calls_only_what_was_looked_at():
    # Functions, automata, definitions and numbers are made of the text that they stand under, and of nothing else; of a
    # log `usual_batches` says only how many entries are read at first, and any number is right
    assert kept_names() == {
        "exact_operations",
        "json_decoder",
        "known_definitions",
        "known_digits",
        "known_functions",
        "known_numbers",
        "known_trees",
        "sequence_texts",
        "unsure",
        "usual_batches",
    }


def test_names_end_in_a_hash_of_the_text():
    found = library()

    assert found.functions.keys() == set(HOT)
    hashed = found.name.removeprefix(PREFIX)
    assert hashed == hashlib.sha256(found.source.replace(hashed, "\x00").encode()).hexdigest()[:20]
    assert found.source.startswith(f"#!lua name={found.name}\n")
    for verb, name in found.functions.items():
        assert name == f"{PREFIX}{verb}_{hashed}"
        assert f"function_name = '{name}'" in found.source


def test_another_text_has_other_names(monkeypatch):
    plainly, before = scripts.compose_library, library()
    more = [("-- another release", "lua/delivery/settle.lua:1")]
    monkeypatch.setattr(functions.scripts, "compose_library", lambda verbs: plainly(verbs)._replace(includes=more))

    after = library.__wrapped__()

    assert after.name != before.name
    assert not set(after.functions.values()) & set(before.functions.values())


@pytest.mark.parametrize("verb", HOT)
def test_a_line_of_a_function_is_named_by_its_file(verb):
    found = library()

    lines = found.source.splitlines()
    assert len(lines) == len(found.where)
    begin = next(number for number, line in enumerate(lines) if f"function_name = '{found.functions[verb]}'" in line)
    last = next(number for number, line in enumerate(lines[begin:], begin + 1) if line == "end}")
    assert found.place(last - 1).startswith("lua/")
    assert found.place(last - 1).partition(":")[0].endswith(f"/{verb}.lua")
    assert found.place(len(lines) + 1) == found.name


def test_a_name_of_an_include_is_that_of_its_file():
    # Given the line that defines a function of an include
    found = library()
    lines = found.source.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith("local function read_run("))

    path, _, at = found.place(number).partition(":")

    assert path == "lua/queues/lib/lease_runs.lua"
    text = (LUA.parent / path).read_text().splitlines()[int(at) - 1]
    assert text.startswith("local function read_run(")


@pytest.mark.parametrize(("text", "used"), [(None, True), ("", True), ("off", False), ("on", True)])
def test_a_process_uses_functions_unless_its_environment_says_off(monkeypatch, text, used):
    monkeypatch.delenv("AMPSQ_FUNCTIONS", raising=False)
    if text is not None:
        monkeypatch.setenv("AMPSQ_FUNCTIONS", text)

    assert are_used() is used


def test_another_word_is_refused_with_what_is_allowed(monkeypatch):
    monkeypatch.setenv("AMPSQ_FUNCTIONS", "yes")

    with pytest.raises(DefinitionError, match="AMPSQ_FUNCTIONS='yes'; allowed: on and off"):
        are_used()


def test_the_hash_that_is_written_with_the_release_is_that_of_what_is_composed():
    assert library_hash.PATH.read_text() == library_hash.text(), "python tests/library_hash.py"
    assert functions.library_name() == library().name
    assert {verb: functions.function_name(verb) for verb in HOT} == library().functions


def test_a_text_is_known_for_the_release_s_own_without_composing_it():
    ours = library().source.encode()
    hashed = library().hash[:20].encode()

    assert functions.has_library_text(ours)
    for other in (ours + b" ", ours[:-1], ours.replace(hashed, b"\0"), ours.replace(hashed, b"\0", 1), b""):
        assert not functions.has_library_text(other)
