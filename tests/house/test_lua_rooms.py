"""Lua's house: rooms in one order, every name once, and a README that is what the heads say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import lua_rooms as rooms
import pytest

FILES = rooms.files()
INCLUDES = {file.name: file for file in FILES if file.is_include}
#: lua/lib is left of all rooms.
RANK = {room: i for i, room in enumerate(["", *rooms.ROOMS])}


def test_every_file_is_in_a_room():
    assert {file.room for file in FILES} == set(RANK)
    assert [file.path for file in FILES if not file.room and not file.is_include] == []
    assert [path.name for path in rooms.FOLDER.glob("*/*/*/**/*.lua")] == []


@pytest.mark.parametrize("is_include", [False, True])
def test_every_name_is_there_once_also_beside_those_of_the_other_kind(is_include):
    counts = Counter(file.name for file in FILES)

    assert [file.path for file in FILES if file.is_include is is_include and counts[file.name] > 1] == []


def test_every_file_has_a_head_that_names_it_and_says_in_a_sentence_what_it_is():
    assert [file.path for file in FILES if not file.meaning.endswith(".")] == []


def test_an_include_is_in_the_same_room_or_left_of_it_or_in_lib():
    wrong = [
        f"{file.path} includes {INCLUDES[name].path}"
        for file in FILES
        for name in file.includes
        if RANK[INCLUDES[name].room] > RANK[file.room]
    ]

    assert wrong == []


def test_no_include_comes_back_to_itself():
    reached = {}

    def visit(name, chain=()):
        assert name not in chain, " -> ".join((*chain, name))
        if name not in reached:
            reached[name] = True
            for each in INCLUDES[name].includes:
                visit(each, (*chain, name))

    for name in INCLUDES:
        visit(name)

    assert len(reached) == len(INCLUDES)


def test_every_include_is_used():
    # The composer includes one by itself: what ends open runs.
    used = {name for file in FILES for name in file.includes} | {"closed_queue"}

    assert sorted(set(INCLUDES) - used) == []


def test_the_readme_is_what_the_heads_say():
    path = rooms.FOLDER / "README.md"

    assert path.read_text() == rooms.readme(), "python tests/lua_rooms.py"
    assert [file.path for file in FILES if f"({file.path})" not in path.read_text()] == []


def test_the_program_tells_a_readme_that_is_not_current(tmp_path):
    program = tmp_path / "tests/lua_rooms.py"
    verb = tmp_path / "lua/log/verb.lua"
    verb.parent.mkdir(parents=True)
    program.parent.mkdir()
    program.write_text(Path(rooms.__file__).read_text())
    verb.write_text("--- verb: does it.\n")

    def run(*arguments):
        return subprocess.run([sys.executable, program, *arguments], capture_output=True, check=False, text=True)

    assert run("--check").returncode == 1
    assert run().returncode == 0
    assert run("--check").returncode == 0
    assert "| [verb](log/verb.lua) | Does it. |" in (tmp_path / "lua/README.md").read_text()
    verb.write_text("--- verb: does it otherwise.\n")
    done = run("--check")
    assert (done.returncode, done.stdout) == (1, "lua/README.md is not what the heads say: python tests/lua_rooms.py\n")
