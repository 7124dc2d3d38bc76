"""Child process of the demo: ``python -m ampsq.cli.demo_worker SPEC``, a `Spec` as JSON.

A child writes ``ready`` into its record file, waits for a line on its standard input, works, and ends when
that input ends: also when its parent was killed, so that none is ever left behind.

Every record is one write, made *before* the message is settled, so that a SIGKILL cannot take it back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ampsq import Client, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq import Message

__all__ = ["BARRIER", "END_WITHIN", "READY", "NeverLeft", "Records", "Spec", "main"]

#: The first line of a record file: the process is connected and waits for the start.
READY = "ready"
#: What was done with a barrier, in its record: it was received.
BARRIER = "barrier"
#: Seconds for an orderly end.
END_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Spec:
    """The orders of one child process.

    Attributes:
        role: ``worker`` (handles flights), ``board`` (shows every flight) or ``coordinator``.
        url: the server.
        instance: the demo's instance.
        records: the file of its own records.
        queue: the queue that it works on.
        backlogs: `max_backlog` of each of its subscriptions; a worker has one.
        pause: seconds that handling a flight takes at least.
    """

    role: str
    url: str
    instance: str
    records: str
    queue: str = ""
    backlogs: tuple[int, ...] = ()
    pause: float = 0.0

    def to_json(self) -> str:
        """The text that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read what `to_json` wrote."""
        given = json.loads(text)
        return cls(**{**given, "backlogs": tuple(given["backlogs"])})


class NeverLeft(Exception):
    """The flight has no departure time, so there is no delay to count."""


class Records:
    """A process's own account of what it did, one line a message: bookmark, delivery, what, and details."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *fields: object) -> None:
        """Add a line; it is the system's when this returns, whatever becomes of this process."""
        os.write(self._file, ("\t".join(map(str, fields)) + "\n").encode())


def count_delays(records: Records, pause: float) -> Callable[[Message], None]:
    """Make the first queue's handler: it notes a flight's carrier and delay, refuses one that never left.

    A barrier is only noted: nobody has to acknowledge it.
    """

    def handle(message: Message) -> None:
        if message.is_barrier:
            records.write(message.bookmark, message.delivery, BARRIER)
            return
        flight = message.data
        if pause:
            time.sleep(pause)
        if flight["dep_time"] is None:
            records.write(message.bookmark, message.delivery, "cancelled")
            raise NeverLeft(f"{flight['carrier']} {flight['flight']} to {flight['dest']}")
        records.write(message.bookmark, message.delivery, "handled", flight["carrier"], flight["dep_delay"])

    return handle


class _Parent:
    """The process that started this one: its word to begin, and its end, both from standard input."""

    def __init__(self) -> None:
        self._told = threading.Event()
        #: Called when this process is to end; until something has begun, it just ends.
        self.stop: Callable[[], object] = lambda: os._exit(0)
        threading.Thread(target=self._listen, daemon=True).start()

    def await_start(self) -> None:
        """Wait for the word to begin."""
        self._told.wait()

    def _listen(self) -> None:
        if sys.stdin.readline():
            self._told.set()
            sys.stdin.read()
        self.stop()
        # If the parent was killed, the server may be gone, too: whoever waits for an answer waits in vain.
        time.sleep(END_WITHIN)
        os._exit(1)


def _work(spec: Spec, records: Records, parent: _Parent) -> None:
    with Client(spec.url, instance=spec.instance) as client:
        worker = Worker(count_delays(records, spec.pause), spec.queue, max_backlog=spec.backlogs[0], client=client)
        records.write(READY)
        parent.await_start()
        parent.stop = worker.stop
        worker.run()


def _show(spec: Spec, records: Records, parent: _Parent) -> None:
    def show(message: Message) -> None:
        records.write(message.bookmark, message.delivery, "handled")
        message.ack()

    with Client(spec.url, instance=spec.instance) as client:
        records.write(READY)
        parent.await_start()
        ended = threading.Event()
        parent.stop = ended.set
        for backlog in spec.backlogs:
            client.subscribe(spec.queue, max_backlog=backlog, on_message=show)
        ended.wait()


def _coordinate(spec: Spec, records: Records, parent: _Parent) -> None:
    from ampsq.coordinator import Coordinator

    coordinator = Coordinator(spec.url, [spec.instance])
    parent.stop = coordinator.stop
    records.write(READY)
    coordinator.run()


def main() -> None:
    """Do what the first argument says."""
    # Ctrl-C reaches the whole process group; the parent ends its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = _Parent()
    spec = Spec.from_json(sys.argv[1])
    records = Records(spec.records)
    {"worker": _work, "board": _show, "coordinator": _coordinate}[spec.role](spec, records, parent)


if __name__ == "__main__":
    main()
