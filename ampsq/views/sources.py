"""Sources of a view's rows: the available messages of a queue, or everything in topics' logs, and their news."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.bookmarks import ref_of
from ampsq.expressions import parse
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.records import is_end
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.reads.definitions import read_definition
from ampsq.protocol.reads.queues import has_lost_events, read_availability_events
from ampsq.protocol.reads.streams import entries_behind, events_of, log_of
from ampsq.queues.browse import Walker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.base.message_types import MessageType
    from ampsq.definitions.queue import View
    from ampsq.protocol.calls.browse import Browsed
    from ampsq.protocol.context import InstanceContext
    from ampsq.protocol.reads.streams import Stream
    from ampsq.protocol.request import Call
    from ampsq.views.rows import Rows

__all__ = ["RecordedMessages", "ViewSource", "WaitingMessages"]

#: Refs of one look: bodies come along.
_LOOK: Final = 100
#: Entries of `events` read at once, each with up to `BATCH` refs.
_ENTRIES: Final = 20
#: Calls of one step, about.
_CALLS: Final = 20
#: Least seconds between two walks over a queue with a target depth, which is walked anew when something changed.
_WALK_AGAIN: Final = 1.0
#: Milliseconds for which a queue tells what changes, and seconds after which a follower asks for more.
_PERIOD: Final = 60_000
_RENEW: Final = 20.0
#: Messages read from a log at once, at first; then about a megabyte's worth.
_FIRST_READ: Final = 20


class ViewSource(Protocol):
    """The source of a view's rows."""

    async def start(self) -> None:
        """Begin to read everything."""
        ...

    async def read_all(self, rows: Rows) -> bool:
        """Read a part of everything; False when that was all."""
        ...

    def streams(self) -> dict[Stream, str]:
        """The streams that tell of news, each with the last ID that was read."""
        ...

    async def read_news(self, rows: Rows, streams: Sequence[Stream]) -> None:
        """Read what came in some of the streams."""
        ...

    async def refresh(self) -> None:
        """Look for new topics: the catalog has changed."""
        ...

    async def renew(self) -> None:
        """Let news go on, if it is time."""
        ...

    def overdue(self) -> float:
        """Seconds until everything is to be read anew; infinite while it is not."""
        ...


class WaitingMessages:
    """The available messages of a queue.

    Args:
        context: where the queue is.
        queue: its name.
        view: whose filter counts.
        message_type: the type of the bodies.
        clock: seconds by which it paces itself, which never go back.
    """

    def __init__(
        self,
        context: InstanceContext,
        queue: str,
        view: View,
        message_type: MessageType,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._type, self._clock = message_type, clock
        self._context, self._queue = context, queue
        self._filter = parse(view.filter, "filter") if view.filter else None
        self._walker: Walker | None = None
        self._definition: bytes | None = None
        self._events = self._since = ""
        self._renewed = float("-inf")
        self._cursors: dict[str, str] = {}
        self._marked: set[bytes] = set()
        self._walked, self._is_stale = float("-inf"), False

    async def start(self) -> None:
        """See `ViewSource`."""
        self._definition = await self._read_definition()
        # Events from here on tell what changed under the walk; what was recorded by now is met by it.
        await self._skip()
        # What the rows have of an earlier walk and this one does not meet is there no more.
        self._marked = set()
        self._walker = Walker(self._context, self._queue, self._filter)
        self._walked, self._is_stale = self._clock(), False

    def _read_definition(self) -> Call[bytes | None]:
        return read_definition(self._context.instance, "queues", self._queue)

    async def _skip(self) -> None:
        """Go to the end of all streams."""
        self._renewed = self._clock()
        self._events, self._since = await browse_calls.watch_availability(self._queue, _PERIOD)
        figures = await stats_calls.stats(self._queue)
        self._cursors = {topic: each.last for topic, each in figures.topics.items()}

    async def renew(self) -> None:
        """Let the queue go on telling; where it had stopped meanwhile, everything is looked at anew."""
        if self._since and self._clock() >= self._renewed + _RENEW:
            renewed = self._clock()
            _, since = await browse_calls.watch_availability(self._queue, _PERIOD)
            self._renewed = renewed
            if since != self._since:
                self._walked, self._is_stale = float("-inf"), True

    def overdue(self) -> float:
        """See `ViewSource`."""
        return self._walked + _WALK_AGAIN - self._clock() if self._is_stale else float("inf")

    async def read_all(self, rows: Rows) -> bool:
        """See `ViewSource`."""
        if self._walker is None:
            return False
        page: list[Browsed] | None = await self._walker.page()
        if page is None:
            rows.keep_only(self._marked)
            self._marked = set()
            return False
        self._marked.update(found.ref for found in page)
        self._add(rows, page)
        return True

    def _add(self, rows: Rows, messages: Iterable[Browsed]) -> None:
        for found in messages:
            rows.add(found.ref, self._context.document(found, self._type))

    def streams(self) -> dict[Stream, str]:
        """See `ViewSource`."""
        logs = {log_of(topic): cursor for topic, cursor in self._cursors.items()}
        return {events_of(self._queue): self._events, **logs}

    async def read_news(self, rows: Rows, streams: Sequence[Stream]) -> None:
        """See `ViewSource`."""
        if self._walker is not None and self._walker.bounded:
            # What becomes active when others leave has no event: all that is active is looked at once more.
            self._is_stale = True
            await self._skip()
            return
        events = events_of(self._queue)
        if events in streams:
            await self._read_events(rows)
        topics = [stream.of for stream in streams if stream != events]
        if topics:
            figures = await stats_calls.stats(self._queue)
            for topic in topics[:_CALLS]:
                await self._read_log(rows, topic, figures.topics[topic].last)

    async def _read_events(self, rows: Rows) -> None:
        """Look at what changed; at everything, where events were lost before they were read."""
        entries = await read_availability_events(self._context.instance, self._queue, self._events, _ENTRIES)
        if await has_lost_events(self._context.instance, self._queue, self._events):
            self._walked, self._is_stale = float("-inf"), True
            return
        refs = dict.fromkeys(ref for each in entries for ref in each.refs)
        some: list[bytes] = []
        for number, ref in enumerate(refs, 1):
            some.append(ref)
            if len(some) == _LOOK or number == len(refs):
                await self._look(rows, some)
                some = []
        if entries:
            self._events = entries[-1].id

    async def _look(self, rows: Rows, refs: list[bytes]) -> None:
        while refs:
            found = await browse_calls.find_available(self._queue, refs)
            for ref, message in zip(refs, found, strict=False):
                if message is None:
                    rows.remove(ref)
                else:
                    rows.add(ref, self._context.document(message, self._type))
            refs = refs[len(found) :]

    async def _read_log(self, rows: Rows, topic: str, until: str) -> None:
        asked = self._filter.json if self._filter is not None else ""
        for _ in range(_CALLS):
            page = await browse_calls.browse(self._queue, f"log {topic}", self._cursors[topic], until, asked)
            self._add(rows, page.messages)
            self._cursors[topic] = page.next or until
            if page.next is None:
                return

    async def refresh(self) -> None:
        """See `ViewSource`."""
        figures = await stats_calls.stats(self._queue)
        for topic in figures.topics:
            self._cursors.setdefault(topic, "0-0")
        # Another filter or depth makes other messages available, of which no event tells.
        if (await self._read_definition()) != self._definition:
            self._is_stale = True


class RecordedMessages:
    """Every message of some topics, each with its message type."""

    def __init__(self, context: InstanceContext, view: View, topics: Mapping[str, MessageType]) -> None:
        self._context, self._view = context, view
        self._types = dict(topics)
        self._cursors = dict.fromkeys(topics, "0-0")
        self._sizes: dict[str, int] = {}
        self._first: deque[str] = deque()

    async def start(self) -> None:
        """See `ViewSource`."""
        self._cursors = dict.fromkeys(self._cursors, "0-0")
        self._first = deque(self._cursors)

    async def read_all(self, rows: Rows) -> bool:
        """See `ViewSource`."""
        if not self._first:
            return False
        topic = self._first[0]
        if not (await self._read_log(rows, topic)):
            self._first.popleft()
        return True

    def streams(self) -> dict[Stream, str]:
        """See `ViewSource`."""
        return {log_of(topic): cursor for topic, cursor in self._cursors.items()}

    async def read_news(self, rows: Rows, streams: Sequence[Stream]) -> None:
        """See `ViewSource`."""
        for stream in streams[:_CALLS]:
            await self._read_log(rows, stream.of)

    async def _read_log(self, rows: Rows, topic: str) -> bool:
        """Read on in one log; False at its end."""
        number = min(max(BYTES // self._sizes[topic], 1), BATCH) if topic in self._sizes else _FIRST_READ
        entries = await entries_behind(self._context.instance, log_of(topic), self._cursors[topic], number)
        total = 0
        for entry_id, flat in entries:
            total += sum(map(len, flat))
            ref = ref_of(topic, entry_id.decode()).encode()
            found = browse_calls.Browsed.of(ref, flat, rank=(0.0, ref))
            if not is_end(found.fields):
                rows.add(ref, self._context.document(found, self._types[topic]), for_good=True)
        if entries:
            self._sizes[topic] = max(total // len(entries), 1)
            self._cursors[topic] = entries[-1][0].decode()
        return len(entries) == number

    async def refresh(self) -> None:
        """See `ViewSource`."""
        catalog = await catalog_calls.catalog()
        for topic in catalog.topics:
            if self._view.feeds_from(topic):
                self._cursors.setdefault(topic, "0-0")
                self._types[topic] = catalog.message_type(topic)

    async def renew(self) -> None:
        """See `ViewSource`."""

    def overdue(self) -> float:
        """See `ViewSource`."""
        return float("inf")
