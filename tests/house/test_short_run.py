"""`make test` leaves out no entry script, room, verb or command: the Makefile runs this behind it.

`tests/calls_seen.py` notes what the run called.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from calls_seen import FOLDER, KINDS, verbs
from test_rooms import LINE

from ampsq.cli.main import program
from ampsq.protocol.scripts import names


@pytest.fixture(scope="module")
def seen():
    """Kind -> names of what the short run called."""
    if FOLDER is None:
        pytest.skip("AMPSQ_SEEN names no folder: `make test` sets it")
    notes = [json.loads(path.read_text()) for path in Path(FOLDER).glob("*.json")]
    assert notes, "nothing was noted: was pytest run with -p calls_seen?"
    if not all(note["is_whole"] for note in notes):
        assert os.environ.get("AMPSQ_FORBID_SKIPS") != "1", "only some tests ran: ARGS chooses"
        pytest.skip("only some tests ran: ARGS chooses")
    return {kind: set().union(*(note[kind] for note in notes)) for kind in KINDS}


def commands(group, words=()):
    """The words of each command, of those that are groups too where they do something themselves."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*words, name))
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


#: Programs for minutes, which slow tests run as processes of their own.
PROGRAMS = {"bench", "demo", "up"}


def left_out(wanted, called):
    """Describe names that nothing called; "" where there are none."""
    missing = sorted(set(wanted) - called)
    return f"only slow tests, or none, have to do with {', '.join(missing)}" if missing else ""


def test_the_short_run_calls_each_entry_script(seen):
    assert left_out(names(), seen["scripts"]) == ""


def test_the_short_run_imports_each_room(seen):
    assert left_out(LINE, seen["rooms"]) == ""


def test_the_short_run_calls_each_verb_of_both_clients(seen):
    assert left_out(verbs(), seen["verbs"]) == ""


def test_the_short_run_runs_each_command(seen):
    assert left_out(set(commands(program)) - PROGRAMS, seen["commands"]) == ""
