"""Hot scripts as server functions: the same text, whose variables are made anew in each call, and its nests once."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.protocol import functions, scripts
from ampsq.protocol.functions import HOT, PREFIX, are_used, function

LUA = Path(__file__).parents[2] / "lua"
#: A variable of an include, which keeps what a call has read.
VARIABLE = re.compile(r"^local (\w+) = \{\}$", re.MULTILINE)
KEPT = re.compile(r"^local (\w+) = \{\} -- kept over calls$", re.MULTILINE)
FORGOTTEN = r"if next\((\w+)\) ~= nil then \1 = \{\} end"
#: What the text of a function has beyond that of its script, within each nest: it is made once.
ONCE = (
    (r"^if nests\.(\w+) then return nests\.\1 end\n", ""),
    (r"^nests\[#nests \+ 1\] = function\(\)\n(?:if next\(\w+\) ~= nil then \w+ = \{\} end\n)+end\n", ""),
    (r"^nests\.(\w+) = (\{.*\})\nreturn nests\.\1$", r"return \2"),
)


@pytest.mark.parametrize("verb", HOT)
def test_a_function_has_the_text_of_its_script_and_makes_what_it_needs_seldom_once(verb):
    source, script = function(verb).source, scripts.script(verb).source
    parts = scripts.pieces(verb, are_nests_kept=True)

    # All lines of the script but its frame are in the function.
    frame = script.splitlines()
    inside = "\n".join(frame[frame.index("local function main()") + 1 : -2])
    written = definitions = "\n".join(text for text, _ in parts.definitions)
    for pattern, without in ONCE:
        definitions = re.sub(pattern, without, definitions, flags=re.MULTILINE)
    assert "nests" not in definitions
    assert inside.startswith(definitions)
    assert written in source
    assert inside.removeprefix(definitions) in source


@pytest.mark.parametrize("verb", HOT)
def test_a_function_forgets_what_it_kept_before_each_call_but_what_its_include_says_is_right_in_all(verb):
    source = function(verb).source
    definitions = "\n".join(text for text, _ in scripts.pieces(verb, are_nests_kept=True).definitions)
    kept = {name for file in LUA.rglob("*.lua") for name in KEPT.findall(file.read_text())}

    # Those within a nest are forgotten by a function beside it, which is called at the beginning, too
    begin = source[source.index("local function begin(") : source.index("redis.register_function")]
    assert "for i = 1, #nests do nests[i]() end" in begin
    forgotten = re.findall(FORGOTTEN, definitions) + re.findall(FORGOTTEN, begin)
    # Two nests may each have one of the same name.
    assert sorted(forgotten) == sorted(name for name in VARIABLE.findall(definitions) if name not in kept)
    assert len(forgotten) > 5


def test_an_include_keeps_over_calls_only_what_was_looked_at():
    # Functions and automata are made of the text that they stand under, and of nothing else
    assert {name for file in LUA.rglob("*.lua") for name in KEPT.findall(file.read_text())} == {
        "exact_operations",
        "json_decoder",
        "known_functions",
        "known_trees",
        "unsure",
    }


@pytest.mark.parametrize("verb", HOT)
def test_the_name_of_a_function_ends_in_a_hash_of_its_text(verb):
    found = function(verb)

    hashed = hashlib.sha256(found.source.replace(found.name, "\x00").encode()).hexdigest()[:20]
    assert found.name == f"{PREFIX}{verb}_{hashed}"
    assert found.source.startswith(f"#!lua name={found.name}\n")
    assert f"function_name = '{found.name}'" in found.source


def test_another_text_has_another_name(monkeypatch):
    plainly, before = scripts.pieces, function("settle").name
    more = [("-- another release", "lua/delivery/settle.lua:1")]
    monkeypatch.setattr(functions.scripts, "pieces", lambda verb, **kept: plainly(verb, **kept)._replace(checks=more))

    assert function.__wrapped__("settle").name != before


@pytest.mark.parametrize("verb", HOT)
def test_a_line_of_a_function_is_named_by_its_file(verb):
    found = function(verb)

    lines = found.source.splitlines()
    assert len(lines) == len(found.where)
    last = next(number for number, line in enumerate(lines, 1) if line == "end}")
    assert found.place(last - 1).startswith("lua/")
    assert found.place(last - 1).partition(":")[0].endswith(f"/{verb}.lua")
    assert found.place(len(lines) + 1) == f"{verb}.lua"


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
