"""The demo's child processes as their parent sees them: started together, watched, one killed, all ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from ampsq.cli.demo_worker import BARRIER, END_WITHIN, READY, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Crew", "Deadline", "DemoFailed", "DemoProcess", "DemoRecord"]

#: Seconds over which a rate is taken.
_RATE_OVER = 1.0
_QUOTED_LINES = 12
_POLL = 0.01
_BARRIER_LINE = f"\t{BARRIER}\n".encode()


class DemoFailed(click.ClickException):
    """The demo cannot go on; the text says why and what to do."""


class Deadline:
    """The time that everything together may take.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def check(self, awaited: str) -> None:
        """Fail when the time is over, saying what was awaited."""
        if time.monotonic() >= self._until:
            raise DemoFailed(
                f"the demo took longer than {self._seconds:g} s and was given up; it waited for {awaited}. "
                "It usually takes a few seconds: is the machine busy, or the server far away? "
                "`ampsq demo --flights 2000` asks for less, and --keep leaves the logs of all processes."
            )


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """A process's note about one delivery, made before it settled the message."""

    bookmark: str
    delivery: int
    did: str
    carrier: str = ""
    delay: int = 0


class DemoProcess:
    """One child process: its records are read as they grow.

    Attributes:
        name: for people.
        backlogs: of its subscriptions.
        state: starting, ready, working, killed or done.
        done: deliveries recorded so far, barriers apart.
        barriers: those recorded so far.
    """

    def __init__(self, name: str, spec: Spec, folder: Path) -> None:
        self.name, self.backlogs, self.state = name, spec.backlogs, "starting"
        self.done = self.barriers = 0
        self.log = folder / f"{name}.log"
        spec = replace(spec, records=str(folder / f"{name}.records"))
        self._records = Path(spec.records)
        self._records.touch()
        self._file, self._begun_line = self._records.open("rb"), b""
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ampsq.cli.demo_worker", spec.to_json()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def read_records(self) -> None:
        """Count what it recorded since the last look; fail if it ended without being asked to."""
        lines, end, self._begun_line = (self._begun_line + self._file.read()).rpartition(b"\n")
        new = lines + end
        if new and self.state == "starting":
            self.state = "ready"
            self.done -= 1
        barriers = new.count(_BARRIER_LINE)
        self.barriers += barriers
        self.done += new.count(b"\n") - barriers
        now = time.monotonic()
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and now - self._seen[0][0] > _RATE_OVER:
            self._seen.popleft()
        if self.state not in ("killed", "done") and self.process.poll() is not None:
            raise DemoFailed(
                f"{self.name} ended by itself with exit code {self.process.returncode}; the end of its log:\n"
                + self._last_words()
            )

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_QUOTED_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"

    @property
    def rate(self) -> float:
        """Deliveries recorded a second, lately."""
        (since, before), (now, done) = self._seen[0], self._seen[-1]
        return (done - before) / (now - since) if now > since else 0.0

    def go(self) -> None:
        """Let it begin."""
        self.state = "working"
        self._tell(b"go\n")

    def ask_to_end(self) -> None:
        """Close its input: it settles what it has begun, and ends."""
        if self.state != "killed":
            self.state = "done"
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def _tell(self, text: bytes) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.write(text)
                self.process.stdin.flush()

    def freeze(self) -> None:
        """Stop it where it is (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL): it can neither say nor give back anything."""
        self.state = "killed"
        self.process.kill()
        self.process.wait(END_WITHIN)

    def end(self) -> None:
        """Wait for it to end, and kill it when it does not."""
        try:
            self.process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._file.close()

    def records(self) -> list[DemoRecord]:
        """All that it recorded; a line that a kill cut off does not count."""
        lines = self._records.read_text().split("\n")[:-1]
        return [_record(line) for line in lines if line != READY]


def _record(line: str) -> DemoRecord:
    bookmark, delivery, did, *details = line.split("\t")
    carrier, delay = details or ("", "0")
    return DemoRecord(bookmark, int(delivery), did, carrier, int(delay))


class Crew:
    """All child processes of one demo; leaving its block ends them, whatever happened.

    Args:
        folder: for records and logs.
        children: names and tasks.
    """

    def __init__(self, folder: Path, children: Sequence[tuple[str, Spec]]) -> None:
        self._folder, self._wanted = folder, children
        self.children: list[DemoProcess] = []

    def __enter__(self) -> Self:
        try:
            for name, spec in self._wanted:
                self.children.append(DemoProcess(name, spec, self._folder))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def await_ready(self, deadline: Deadline) -> None:
        """Wait until all have started."""
        while any(child.state == "starting" for child in self.children):
            deadline.check("the worker processes to start")
            self.read_records()
            time.sleep(_POLL)

    def go(self) -> None:
        """Let all begin."""
        for child in self.children:
            child.go()

    def read_records(self) -> None:
        """Count what all have recorded since the last look."""
        for child in self.children:
            child.read_records()

    def ask_to_end(self) -> None:
        """Let all end, and do not wait for it."""
        for child in self.children:
            child.ask_to_end()

    def end(self) -> None:
        """Ask all to end, and see to it."""
        self.ask_to_end()
        for child in self.children:
            child.end()
