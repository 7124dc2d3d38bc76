"""All that is known of a demo at its end: what was published, the queues' journals, and the processes' records."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.protocol.reads.journals import read_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.cli.demo_crew import DemoRecord
    from ampsq.transport.store import Store

__all__ = ["Evidence", "Journal", "wrong"]

_ENTRIES = 500
_SHOWN = 3


class Journal:
    """A queue's journal, followed as it grows.

    Attributes:
        ways: how a message was settled -> bookmark -> how often.
        places: bookmark -> the number of the entry that settled it, the last one if there are several.
    """

    def __init__(self, queue: str, origin: str) -> None:
        self.ways: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.places: dict[str, int] = {}
        self._queue, self._origin, self._cursor, self._entries = queue, origin, "0-0", 0

    def follow(self, store: Store) -> None:
        """Read what is new."""
        while True:
            entries = store.call(read_journal(store.instance, self._queue, self._cursor, _ENTRIES))
            for entry in entries:
                self._cursor = entry.id
                refs = [parse_ref(ref.decode()) for ref in entry.refs]
                self.note(entry.how, [Bookmark.of(topic, self._origin, found) for topic, found in refs])
            if len(entries) < _ENTRIES:
                return

    def note(self, how: str, bookmarks: Iterable[str]) -> None:
        """Add the next entry: messages that were settled in the same way at the same time."""
        self._entries += 1
        for bookmark in bookmarks:
            self.ways[how][bookmark] += 1
            self.places[bookmark] = self._entries

    def count(self, how: str) -> int:
        """Return the number of messages that were settled so."""
        return len(self.ways[how])

    def times(self, bookmark: str) -> int:
        """Return the number of times that a message was settled, in whatever way."""
        return sum(way[bookmark] for way in self.ways.values())


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known at the end.

    Attributes:
        flights: bookmark -> the flight as it was published.
        barriers: bookmark -> the day that this message ends, in the order of publishing.
        delays: the journal of the first queue.
        workers: name -> what this worker of the first queue recorded, in its order.
        letters: what arrived in the dead-letter topic.
        board: the journal of the second queue.
        board_records: of the process on it.
        max_cancels: the first queue's limit.
        killed: worker that was killed -> barriers that the journal had by then.
    """

    flights: Mapping[str, Mapping[str, object]]
    barriers: Mapping[str, str]
    delays: Journal
    workers: Mapping[str, Sequence[DemoRecord]]
    letters: Sequence[Mapping[str, object]]
    board: Journal
    board_records: Sequence[DemoRecord]
    max_cancels: int
    killed: Mapping[str, int]

    def records(self, did: str | None = None) -> list[DemoRecord]:
        """Return the records of all workers about flights, or only those that did one thing with them."""
        everything = (record for records in self.workers.values() for record in records)
        return [record for record in everything if did in (None, record.did) and record.bookmark not in self.barriers]


def wrong(bookmarks: Iterable[str], what: str, things: str = "flights") -> str:
    """Say what is wrong with how many; nothing, if there are none."""
    found = sorted(bookmarks)
    if not found:
        return ""
    more = ", ..." if len(found) > _SHOWN else ""
    return f"{len(found):,} {things} {what}: {', '.join(found[:_SHOWN])}{more}"
