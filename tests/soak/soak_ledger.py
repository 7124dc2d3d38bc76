"""Ledgers of the soak's processes, written before they go on, so that a killed one leaves all that it did.

A publisher's file has a line a batch: `a` attempted, `p` told to be recorded or taken, and the first and last of its
numbers. A consumer's has a line a message: `h` handled, `k` its acknowledgement was confirmed, then the publisher, the
number and the ID in the log.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

__all__ = ["Consumed", "Ledger", "Published", "wait_while_paused"]


class Ledger:
    """A file to which any number of threads and processes add lines."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, *words):
        os.write(self._file, " ".join(map(str, words)).encode() + b"\n")


class Published:
    """The numbers of one publisher, across its lives.

    Args:
        folder: of the run.
        by: the publisher.
    """

    def __init__(self, folder, by):
        self._path, self.by = folder / "published" / by, by
        attempted, self.told = self._read()
        self.next = max((last for _, last in attempted), default=-1) + 1
        self._write = Ledger(self._path)

    def _read(self):
        found = {"a": [], "p": []}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                what, first, last = line.split()
                found[what].append((int(first), int(last)))
        return found["a"], found["p"]

    def attempt(self, count):
        """Take the next numbers; they are on record before anybody is sent them."""
        numbers = range(self.next, self.next + count)
        self.next += count
        self._write("a", numbers[0], numbers[-1])
        return numbers

    def is_told(self, numbers):
        self._write("p", numbers[0], numbers[-1])

    def all_told(self):
        """Every number that the publisher was told to be safe."""
        return {number for first, last in self.told for number in range(first, last + 1)}


class Consumed:
    """The ledger of the consumers of one queue or topic, read at the end.

    Attributes:
        handled: (publisher, number) -> IDs in the log under which it came, in their order.
        again: deliveries of a message that had come before; each is a kill's, or a refusal's.
        after_acknowledgement: messages that came after their acknowledgement was confirmed; never allowed.
    """

    def __init__(self, lines):
        self.handled, self.again, self.after_acknowledgement = defaultdict(list), 0, []
        confirmed = set()
        for line in lines:
            what, by, number, place = line.split()
            message = (by, int(number))
            if what == "k":
                confirmed.add((message, place))
            elif (message, place) in confirmed:
                self.after_acknowledgement.append(message)
            elif place in self.handled[message]:
                self.again += 1
            else:
                self.handled[message].append(place)


def wait_while_paused(folder, name, become_quiet, sleep=time.sleep):
    """Pause where that is asked for: end what is under way, say so, and wait until it is over."""
    pause = folder / "pause"
    if not pause.exists():
        return
    epoch = pause.read_text()
    become_quiet()
    (folder / "quiet" / name).write_text(epoch)
    while pause.exists():
        sleep(0.05)  # between two looks
