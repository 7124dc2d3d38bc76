"""Runs the program against an embedded server of each file's own: in this process, or as a user does, in its own.

Most tests of commands are of what they say and do, which needs no new Python each time; what is about the program
as a process (signals, pipes, terminals, imports, the embedded server that it starts) uses `process` and `alone`.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from programs import Called, Program

from ampsq.files.config import load
from ampsq.server.embedded import acquire

DEFINITIONS = """
topics:
  - name: orders
queues:
  - name: work
    underlying_topic: orders
    lease_period: 30s
    max_per_subscription_backlog: 10
  - name: other
actions:
  - dead_letter: {queue: work, topic: dead}
"""


@pytest.fixture
def folder():
    """An empty folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def served():
    """An embedded server, one a file."""
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as path, acquire(Path(path, "d")) as server:
        yield server


_numbers = iter(range(1, 1_000_000))


def _on_an_instance(kind, folder, served):
    return _opened(kind(folder, served.url, f"i{next(_numbers)}"))


def _opened(program):
    """The program, whose instance is there."""
    with program.client():
        return contextlib.closing(program)


def _with_definitions(program):
    with program.client() as client:
        client.apply(*load(DEFINITIONS))
    return program


@pytest.fixture
def run(folder, served):
    """The program on an instance of the test's own, in this process."""
    with _on_an_instance(Called, folder, served) as program:
        yield program


@pytest.fixture
def process(folder, served):
    """The same, each command a process of its own."""
    with _on_an_instance(Program, folder, served) as program:
        yield program


@pytest.fixture
def defined(run):
    """`run` with `DEFINITIONS` applied."""
    return _with_definitions(run)


@pytest.fixture
def defined_process(process):
    """`process` with `DEFINITIONS` applied."""
    return _with_definitions(process)


@pytest.fixture
def alone(folder):
    """The program where no server is named, each command a process of its own."""
    with contextlib.closing(Program(folder)) as program:
        yield program


@pytest.fixture
def definitions():
    return DEFINITIONS


@pytest.fixture(scope="module")
def uncared():
    """A server without a coordinator."""
    with (
        tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as path,
        acquire(Path(path, "d"), coordinator=False) as server,
    ):
        yield server


@pytest.fixture
def lonely(folder, uncared):
    """The program on an instance of a server without a coordinator."""
    with _opened(Called(folder, uncared.url, "lonely")) as program:
        yield program
