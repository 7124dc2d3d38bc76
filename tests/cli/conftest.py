"""Runs the program as a user does: as a process of its own, against an embedded server of each file's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import ampsq
from ampsq.config import load
from ampsq.embedded import acquire

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
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = subprocess.run(
            [*PROGRAM, *arguments],
            input=given,
            capture_output=True,
            cwd=self.folder,
            env=self.environment,
            timeout=LIMIT,
            check=False,
        )
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.err, result.err
        assert result.code == code, result
        return result

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

    def start_at(self, terminal, width, *arguments):
        """Start one at a terminal."""
        environment = self.environment | {"COLUMNS": str(width), "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        return subprocess.Popen(
            [*PROGRAM, *arguments], stdin=terminal, stdout=terminal, cwd=self.folder, env=environment
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


@pytest.fixture
def run(folder, served):
    """The program on an instance of the test's own."""
    program = Program(folder, served.url, f"i{next(_numbers)}")
    yield program
    program.close()


@pytest.fixture
def defined(run):
    """The same, with `DEFINITIONS` applied."""
    with run.client() as client:
        client.apply(*load(DEFINITIONS))
    return run


@pytest.fixture
def alone(folder):
    """The program where no server is named."""
    program = Program(folder)
    yield program
    program.close()


@pytest.fixture
def definitions():
    return DEFINITIONS
