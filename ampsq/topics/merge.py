"""Pages of several logs as one order. Pure: pages go in, and what no message can come before any more comes out.

A page is what one `XREAD` gave over all logs that are to be read: it has everything of each up to the last entry that
it has of it, and of a log of which it has fewer entries than were asked for, all that there is. What is known that far
of every log is handed on; the rest waits for the next page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.log_positions import FIRST, Id, LogSpan, parse_id
from ampsq.protocol.limits import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.reads.streams import LogPages

__all__ = ["Entry", "MergedLog", "Merging", "Request"]

#: A topic, the ID of an entry of its log, and the entry's names and values in turn.
Entry: TypeAlias = "tuple[str, bytes, list[bytes]]"

#: Entries of the first page, over all topics; then about `BYTES` bytes. At most so many: that is what a topic costs
#: whose bodies become large from one page to the next, since a server counts entries; more of them make it no faster.
_FIRST_PAGE: Final = 4
_LAST_PAGE: Final = 200
#: Entries of a page whose sizes are looked at, about, over all of it.
_SAMPLE: Final = 32


@dataclass(slots=True, eq=False)
class MergedLog:
    """One topic as its reader knows it.

    Attributes:
        topic: the topic.
        name: of its log, as `ampsq.protocol.reads.streams.log_key` gives it.
        spans: what is still to be read; empty: nothing.
        cursor: the last ID that was read, or from where on to read.
        known: up to where all that there is was read; None: up to the moment of the last page.
        waits: whether some of what was read waits while an earlier message of another topic may come.
        removed: the greatest ID that was removed, as far as that was noticed.
        count: entries that were read.
        passed: the last ID that was handed on, or was none of the subscription's business.
    """

    topic: str
    name: bytes
    spans: deque[LogSpan]
    cursor: Id
    passed: Id
    count: int = 0
    known: Id | None = FIRST
    waits: bool = False
    removed: Id = FIRST

    def begin(self, spans: Sequence[LogSpan]) -> None:
        """Read these, from the first one's beginning on."""
        self.spans = deque(spans)
        self.cursor = self.passed = self.spans[0].after if self.spans else FIRST
        self.known = self.cursor if self.spans else None


@dataclass(frozen=True, slots=True)
class Request:
    """A page that was asked for: of which logs, how many of each, and the last ID that was past by then."""

    logs: Sequence[MergedLog]
    count: int
    past: Id


class Merging:
    """The logs of a reader, and what was read of them and is not handed on yet.

    Attributes:
        logs: by topic.
        size: bytes of an entry, about.
    """

    def __init__(self) -> None:
        self.logs: dict[str, MergedLog] = {}
        self.size = 1
        self._count = _FIRST_PAGE
        # Read, and not handed on yet, in order: both numbers of the ID, and the entry.
        self._waiting: list[tuple[int, int, str, bytes, list[bytes]]] = []

    def begin(self) -> None:
        """Begin with the logs that there are."""
        self._count = max(_FIRST_PAGE // max(len(self.logs), 1), 1)

    @property
    def waits(self) -> bool:
        """Return whether something is read that is not handed on yet."""
        return bool(self._waiting)

    @property
    def is_read(self) -> bool:
        """Return whether all that is asked for is read and handed on."""
        return not self._waiting and not any(log.spans for log in self.logs.values())

    def next_logs(self) -> list[MergedLog]:
        """The logs to be read next: what has something waiting is known as far as that."""
        return [log for log in self.logs.values() if log.spans and not log.waits]

    def next_page(self, past: Id) -> Request:
        """The page to ask for.

        Args:
            past: the last ID of which none at or below it comes any more.
        """
        return Request(self.next_logs(), self._count, past)

    def take(self, request: Request, reply: LogPages) -> list[Entry]:
        """Take a page in; gives what may be handed on."""
        self._resize(reply)
        single = len(self.logs) == 1
        page: list[Entry] = []
        asked = set(request.logs)
        for log in self.logs.values():
            if log not in asked:
                # Of a later moment than its own page nothing is known of it.
                log.known = log.cursor if log.spans else None
                continue
            entries = self._advance(log, reply.get(log.name, []), request)
            if single:
                page = [(log.topic, entry_id, flat) for entry_id, flat in entries]
                log.passed = log.cursor
            else:
                self._waiting += [(*parse_id(entry_id), log.topic, entry_id, flat) for entry_id, flat in entries]
        return page if single else self._merge()

    def _advance(self, log: MergedLog, entries: list[RawEntry], request: Request) -> list[RawEntry]:
        """Go on in a log; gives the entries that are asked for."""
        is_full = len(entries) >= request.count
        if entries:
            log.cursor = parse_id(entries[-1][0])
            log.count += len(entries)
        log.known = log.cursor if is_full else None
        if log.spans[0].last is None:
            return entries
        wanted: list[RawEntry] = []
        while log.spans and (last := log.spans[0].last) is not None:
            after = log.spans[0].after
            wanted += [entry for entry in entries if after < parse_id(entry[0]) <= last]
            if log.cursor < last and not (log.known is None and request.past >= last):
                return wanted
            log.spans.popleft()
            if log.spans and log.spans[0].after > log.cursor:
                log.cursor = log.known = log.spans[0].after
                return wanted
        log.known = None if not log.spans else log.known
        return wanted

    def _merge(self) -> list[Entry]:
        """Return the messages before which none can come any more, in order."""
        bound = min((log.known for log in self.logs.values() if log.known is not None), default=None)
        # What waited already is in order, and so is what came of each topic: sorting finds that.
        self._waiting.sort()
        end = len(self._waiting) if bound is None else bisect_right(self._waiting, bound, key=lambda one: one[:2])
        merged, self._waiting = self._waiting[:end], self._waiting[end:]
        waiting = {one[2] for one in self._waiting}
        for log in self.logs.values():
            log.waits = log.topic in waiting
            log.passed = max(log.passed, bound) if log.waits and bound is not None else log.cursor
        return [(topic, entry_id, flat) for _, _, topic, entry_id, flat in merged]

    def _resize(self, got: LogPages) -> None:
        """Ask for about as much as a call may read, over all topics that have something."""
        number = sum(map(len, got.values()))
        if not number:
            return
        # What comes is like all of a page, or already like its end.
        step = -(-number // _SAMPLE)
        size = self.size = max(
            _mean_size(flat for entries in got.values() for _, flat in entries[::-step]),
            _mean_size(flat for entries in got.values() for _, flat in entries[-3:]),
        )
        most = max(min(BYTES // size, _LAST_PAGE) // len(got), 1)
        # From one page to the next at most fourfold: a topic that was quiet may have much by now.
        self._count = min(most, self._count * 4)


def _mean_size(sample: Iterable[list[bytes]]) -> int:
    sizes = [sum(map(len, flat)) for flat in sample]
    return max(sum(sizes) // len(sizes), 1)
