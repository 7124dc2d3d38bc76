"""The program `ampsq` as tests run it: in this process, or as a user does, in a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from unittest import mock

import pytest

import ampsq
from ampsq.cli.main import main

__all__ = ["LIMIT", "PROGRAM", "Called", "Program", "Result", "Shell", "at_terminal"]

PROGRAM = [sys.executable, "-m", "ampsq.cli"]
#: Seconds within which a command is to end.
LIMIT = 60.0


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


def at_terminal(run, width, *arguments):
    """Return what a person sees in a terminal of that width."""
    leader, follower = pty.openpty()
    process = run.start_at(follower, width, *arguments)
    os.close(follower)
    seen = b""
    while select.select([leader], [], [], 20)[0]:
        try:
            seen += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    assert process.wait(20) == 0
    return seen.decode()


class Shell:
    """Runs the lines of a document's commands as bash does, save that the program is called in this process.

    Args:
        program: what calls it.
    """

    _ASSIGNED = re.compile(r"(\w+)=\$\(ampsq (.*?) \| (.*)\)")
    _WRITTEN = re.compile(r"ampsq (.*?) > (\S+)(?: +#.*)?")

    def __init__(self, program):
        self._program = program

    def __call__(self, commands):
        """Run lines, each of which is to succeed; gives what they printed."""
        return "".join(map(self._line, commands.splitlines()))

    def _line(self, line):
        if found := self._ASSIGNED.fullmatch(line):
            name, words, filters = found.groups()
            self._program.environment[name] = self._bash(filters, self._ampsq(words)).rstrip("\n")
            return ""
        if found := self._WRITTEN.fullmatch(line):
            (self._program.folder / found[2]).write_text(self._ampsq(found[1]))
            return ""
        assert line.startswith("ampsq "), f"say here how this is run: {line}"
        return self._ampsq(line.removeprefix("ampsq "))

    def _ampsq(self, words):
        """Call the program with words, which bash takes apart."""
        return self._program(*self._bash(rf"printf '%s\0' {words}").split("\0")[:-1]).out

    def _bash(self, text, given=""):
        done = subprocess.run(
            ["bash", "-euc", text],  # noqa: S607
            input=given,
            env=self._program.environment,
            cwd=self._program.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


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
