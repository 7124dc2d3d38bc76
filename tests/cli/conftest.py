"""Runs the program against an embedded server of each file's own: in this process, or as a user does, in its own.

Most tests of commands are of what they say and do, which needs no new Python each time; what is about the program
as a process (signals, pipes, terminals, imports, the embedded server that it starts) uses `process` and `alone`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

import ampsq
from ampsq.cli.main import main
from ampsq.embedded import acquire
from ampsq.files.config import load

PROGRAM = [sys.executable, "-m", "ampsq.cli"]
LIMIT = 20.0
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


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """The objects printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Program:
    """The program in a folder, with a server (or none) in its environment."""

    def __init__(self, folder, url=None, instance=None):
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("AMPSQ_")}
        self.environment |= {"AMPSQ_URL": url} if url else {}
        self.environment |= {"AMPSQ_INSTANCE": instance} if instance else {}
        self.started = []

    def __call__(self, *arguments, stdin="", code=0):
        """Run a command to its end; it must end with `code`, without a traceback."""
        result = self.ended(arguments, stdin if isinstance(stdin, bytes) else stdin.encode())
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result
        return result

    def ended(self, arguments, given):
        """Run a command as a process."""
        done = subprocess.run(
            [*PROGRAM, *arguments],
            input=given,
            capture_output=True,
            cwd=self.folder,
            env=self.environment,
            timeout=LIMIT,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments, stdin=subprocess.DEVNULL):
        """Start a command that stays; it is ended with the test."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
            text=True,
        )
        self.started.append(process)
        return process

    def start_at(self, terminal, width, *arguments, stderr=None):
        """Start one at a terminal."""
        environment = self.environment | {"COLUMNS": str(width), "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        return subprocess.Popen(
            [*PROGRAM, *arguments], stdin=terminal, stdout=terminal, stderr=stderr, cwd=self.folder, env=environment
        )

    def end(self, process, number=signal.SIGTERM):
        """Stop one: its exit code and what it printed since."""
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT)
        assert "Traceback" not in err, err
        return Result(process.returncode, out, err)

    def publish(self, *messages, topic="orders"):
        """Publish in this process, which is faster: the bookmarks."""
        with self.client() as client:
            return [str(client.publish(topic, message)) for message in messages]

    def client(self):
        return ampsq.Client(self.environment["AMPSQ_URL"], instance=self.environment.get("AMPSQ_INSTANCE"))

    def close(self):
        for process in self.started:
            # Terminated first, so that it can end its own children.
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            process.kill()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait(LIMIT)


class Called(Program):
    """The program whose commands run in this process; what is started is a process all the same."""

    def ended(self, arguments, given):
        """Call the program as its script does, with all that it has of its process: an exception is the test's."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.multiple(
                sys,
                argv=["ampsq", *arguments],
                stdin=io.TextIOWrapper(io.BufferedReader(io.BytesIO(given)), "utf-8"),
                stdout=out,
                stderr=err,
            ),
            _signals_and_logging_restored(),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())
        return Result(ended.value.code or 0, *texts)


@contextlib.contextmanager
def _signals_and_logging_restored():
    """A new process has no handlers of pytest's, and keeps its own to itself."""
    handled = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root, ours = logging.getLogger(), logging.getLogger("ampsq")
    levels = [(logger, logger.level) for logger in (root, ours)]
    handlers, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = handlers
        for logger, level in levels:
            logger.setLevel(level)
        for number, handler in handled.items():
            signal.signal(number, handler)


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
