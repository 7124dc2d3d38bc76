"""The server's answers to a guaranteed publisher: the bookmarks of its messages, for those who ask."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import Bookmark
from ampsq.protocol.calls.publish import Published
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.publishers import read_publish_targets

if TYPE_CHECKING:
    from ampsq.base.errors import AmpsqError
    from ampsq.publishing.session import StoreAnswer

__all__ = ["PublishedRuns", "find_published"]

#: Answers that are kept, each of up to 500 messages; what is older is looked for in the log.
_KEPT: Final = 10_000


class _Run(NamedTuple):
    """Messages whose numbers and IDs follow each other."""

    first: int
    last: int
    topic: str
    origin: str
    id: str

    def bookmark(self, sequence: int) -> Bookmark:
        """Return the bookmark of one of them."""
        milliseconds, number = self.id.split("-")
        return Bookmark.of(self.topic, self.origin, f"{milliseconds}-{int(number) + sequence - self.first}")


class PublishedRuns:
    """The last answers of the server, in the order of their numbers. One thread adds, any thread asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[_Run] = []
        self._deleted: dict[int, int] = {}
        self._refused: dict[int, AmpsqError] = {}

    def add(self, answer: StoreAnswer, origin: str) -> None:
        """Add an answer that an instance gave; what it says of numbers that were answered before counts now."""
        entry, reply = answer
        with self._lock:
            while self._runs and self._runs[-1].last >= entry.sequence:
                self._runs.pop()
            if not isinstance(reply, Published):
                self._deleted[entry.sequence] = reply.number
            elif not reply.duplicates:
                # Which of them a reply does not say where the first ones were recorded before.
                self._runs.append(_Run(entry.sequence, entry.last, reply.topic, origin, reply.first_id))
            if len(self._runs) > _KEPT:
                del self._runs[: _KEPT // 2]
            _forget_beyond(self._deleted)

    def refuse(self, sequence: int, error: AmpsqError) -> None:
        """Note that the server refused a number for good."""
        with self._lock:
            self._refused[sequence] = error
            _forget_beyond(self._refused)

    def refusal(self, sequence: int) -> AmpsqError | None:
        """Return the reason why the server refused a number; None where it did not, as far as that is kept."""
        return self._refused.get(sequence)

    def bookmark(self, sequence: int) -> Bookmark | None:
        """The bookmark of a message; None where no answer that is kept has it."""
        with self._lock:
            at = bisect_right(self._runs, sequence, key=lambda run: run.first) - 1
            run = self._runs[at] if at >= 0 else None
        return run.bookmark(sequence) if run is not None and sequence <= run.last else None

    def deleted(self, sequence: int) -> int:
        """Return the number of records that a deletion found; 0 where its answer was lost."""
        return self._deleted.get(sequence, 0)


def _forget_beyond(kept: dict[int, int] | dict[int, AmpsqError]) -> None:
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept)))  # type: ignore[call-overload, arg-type, unused-ignore]


async def find_published(instance: str, origin: str, publisher: str, sequence: int, topic: str) -> Bookmark:
    """Find a message by its publisher's number, from the end of its topic's log on.

    Gives a bookmark with an empty ID where the log does not have it any more.
    """
    (target,) = await read_publish_targets(instance, [topic])
    found = await find_bookmark(origin, Bookmark.of_publisher(publisher, sequence), [target])
    return found.bookmark if found.id else Bookmark.of(target, origin, "")
