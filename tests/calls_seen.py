"""Calls of a run of the tests: entry scripts, rooms, verbs of both clients, commands.

With `AMPSQ_SEEN=FOLDER` the plugin ``-p calls_seen`` notes it, each process of the tests in a file of its own;
`tests/house/test_short_run.py` then says what `make test` left out. What only processes that a test starts call does
not count.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from pathlib import Path

import click
import redis.asyncio.connection
import redis.connection

import ampsq
from ampsq.protocol.functions import HOT, library
from ampsq.protocol.scripts import names, script

#: Where notes are kept; None: nowhere.
FOLDER = os.environ.get("AMPSQ_SEEN")
#: The kinds of what is noted.
KINDS = ("scripts", "rooms", "verbs", "commands")

_tests = Path(__file__).resolve().parent
_scripts = {script(name).sha.encode(): name for name in names()}
_scripts |= {library().functions[verb].encode(): verb for verb in HOT}
_seen: dict[str, set[str]] = {kind: set() for kind in KINDS}


def verbs():
    """Class and name of each public method of both clients, and of their `admin` -> the class with its body."""
    return {
        f"{kind.__name__}.{name}": next(owner for owner in kind.__mro__ if name in vars(owner))
        for kind in (ampsq.Client, ampsq.AsyncClient, ampsq.Admin, ampsq.AsyncAdmin)
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def _note_scripts(kind):
    """Let connections note which script is sent on them: its hash is near the beginning of a request."""
    plainly = kind.send_packed_command

    @functools.wraps(plainly)
    def send(self, command, *arguments, **options):
        head = (command if isinstance(command, bytes) else b"".join(command))[:80]
        words = head.split(b"\r\n", 5)
        if len(words) > 4 and words[2] in {b"EVALSHA", b"FCALL"} and words[4] in _scripts:
            _seen["scripts"].add(_scripts[words[4]])
        return plainly(self, command, *arguments, **options)

    kind.send_packed_command = send


def _note_verb(verb, owner):
    name = verb.partition(".")[2]
    plainly = vars(owner)[name]

    @functools.wraps(plainly)
    def called(self, *arguments, **options):
        _seen["verbs"].add(verb)
        return plainly(self, *arguments, **options)

    setattr(owner, name, called)


def _note_commands():
    plainly = click.Command.invoke

    @functools.wraps(plainly)
    def invoke(self, ctx):
        words, at = [], ctx
        # Not its path, which begins with how the program is called.
        while at.parent is not None:
            words.insert(0, at.info_name)
            at = at.parent
        _seen["commands"].add(" ".join(words))
        return plainly(self, ctx)

    click.Command.invoke = invoke


def _is_whole(config):
    """True unless only some tests were asked for."""
    chosen = {Path(argument.partition("::")[0]).resolve() for argument in config.args} - {_tests, _tests / "spark"}
    return not (chosen or config.option.keyword or config.option.deselect)


def pytest_configure(config):
    is_run_by_others = bool(config.getoption("numprocesses", None))
    if FOLDER is None or is_run_by_others:
        return
    for kind in (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection):
        _note_scripts(kind)
    for verb, owner in verbs().items():
        _note_verb(verb, owner)
    _note_commands()


def pytest_sessionfinish(session):
    if FOLDER is None or session.config.getoption("numprocesses", None):
        return
    _seen["rooms"] = {name.split(".")[1] for name in sys.modules if name.startswith("ampsq.")}
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    notes = {kind: sorted(found) for kind, found in _seen.items()}
    (folder / f"{os.getpid()}.json").write_text(json.dumps({"is_whole": _is_whole(session.config), **notes}))
