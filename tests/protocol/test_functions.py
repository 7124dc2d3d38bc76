"""Hot scripts as server functions: the same text, whose variables are made anew in each call."""

from __future__ import annotations

import hashlib
import re

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.protocol import functions, scripts
from ampsq.protocol.functions import HOT, PREFIX, are_used, function

#: What an include may keep.
KEPT = re.compile(r"^local (\w+) = \{\}$")


@pytest.mark.parametrize("verb", HOT)
def test_a_function_has_the_text_of_its_script_and_forgets_what_it_kept_before_each_call(verb):
    source, script = function(verb).source, scripts.script(verb).source
    parts = scripts.pieces(verb)

    # All lines of the script but its frame are in the function.
    frame = script.splitlines()
    inside = "\n".join(frame[frame.index("local function main()") + 1 : -2])
    definitions = "\n".join(text for text, _ in parts.definitions)
    assert inside.startswith(definitions)
    assert definitions in source
    assert inside.removeprefix(definitions) in source

    # What stands beside a function, and not within one, is kept from call to call.
    kept, depth = set(), 0
    for line in definitions.splitlines():
        depth += line.startswith("local function ") and not line.endswith(" end")
        depth -= line == "end"
        if not depth and (found := KEPT.match(line)):
            kept.add(found[1])
    assert depth == 0
    begin = source[source.index("local function begin(") : source.index("redis.register_function")]
    assert kept == set(parts.variables) != set()
    assert set(re.findall(r"if next\((\w+)\) ~= nil then \1 = \{\} end", begin)) == set(parts.variables)


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
    monkeypatch.setattr(functions.scripts, "pieces", lambda verb: plainly(verb)._replace(checks=more))

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
