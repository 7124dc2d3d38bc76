"""Reading topics' logs: from a place on, over several topics in the one order of their IDs, then live; all as flows.

A reader has a cursor for each topic, and nothing else: the log is the buffer. One `XREAD` over all of its topics sees
them in one moment, so that what it gives can be put in order, and no message is met twice or passed over between what
was recorded and what comes. While a page is handed out the next one travels. A reader keeps what it needs from being
trimmed, for a bounded time after it was heard of last.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from ampsq.base.bookmarks import PublisherBookmark
from ampsq.base.errors import BookmarkNotFound, Unavailable
from ampsq.base.log_positions import (
    FIRST,
    BookmarkEnd,
    BookmarkSpec,
    Id,
    LogSpan,
    StoredPosition,
    check_ranges,
    id_text,
    next_id,
    spans_of,
)
from ampsq.base.name_patterns import parse_topic_or_pattern
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls.retention import hold
from ampsq.protocol.reads.clock import last_given_id, server_time
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.message_names import find_bookmarks
from ampsq.protocol.reads.removed import removed_ids
from ampsq.protocol.reads.streams import last_id, log_key, log_of, read_logs
from ampsq.protocol.request import Collect, Pause, Post
from ampsq.topics.merge import MergedLog, Merging
from ampsq.topics.topic_names import topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.reads.streams import LogPages
    from ampsq.protocol.request import AnyPipeline, Call
    from ampsq.topics.fully_durable import Durability
    from ampsq.topics.merge import Entry, Request

__all__ = ["LogReader", "NotFound"]

T = TypeVar("T")
_log = logging.getLogger("ampsq")
NotFound: TypeAlias = Literal["epoch", "now", "fail"]

#: Seconds after which new topics, and what else may have changed, are looked for.
_CHECK: Final = 1.0
#: Milliseconds for which a log is held for a reader that is not heard of, and seconds after which it holds again.
_HOLD: Final = 60_000
_HOLD_AGAIN: Final = 20.0
#: Calls that are sent before the first one's reply is read.
_AHEAD: Final = 100
_LAST: Final = 2**64 - 1


class LogReader:
    """Reads the entries of topics, in order: all of them, also those that are no message of the topic.

    `open` it, then `read` again and again; after each, `read_ahead` once what was read is safe; at the end `close`.

    Args:
        instance: the instance's name.
        origin: its origin, for texts.
        name: a topic; a queue that is none, for its underlying topics; or a regular expression of topics, later ones
            included.
        asked: from where, and up to where.
        kept: what a bookmark store has of the subscription.
        not_found: what to do when a log does not have everything any more from where it was to begin.
        holder: the reader's name, under which it holds logs.
        durability: waits until what was read cannot be lost; None: does not.
        reads_queues: whether a queue's name stands for its topics; False refuses it.

    Attributes:
        completed: whether all ranges were read to their ends.
        missed: topics of whose logs something was gone that was asked for.
    """

    def __init__(
        self,
        instance: str,
        origin: str,
        name: str,
        asked: BookmarkSpec,
        *,
        holder: str,
        kept: StoredPosition | None = None,
        not_found: NotFound = "now",
        durability: Durability[Request] | None = None,
        reads_queues: bool = True,
    ) -> None:
        self._instance, self._origin = instance, origin
        self.name, self._asked, self._kept = parse_topic_or_pattern(name), asked, kept
        self._not_found, self._holder, self._durability = not_found, f"replay {holder}", durability
        self._reads_queues = reads_queues
        self._merging = Merging()
        self._version = -1
        self._checked = self._held = float("-inf")
        # The last ID that was given before the reader began, and the last one of which none at or below it comes.
        self._clock, self._past = FIRST, FIRST
        self._final: Id | None = None
        self._posted: deque[Request] = deque()
        #: The message types of the topics that are read.
        self.types: dict[str, MessageType] = {}
        self.completed = False
        self.missed: set[str] = set()
        #: The transports that are defined, JSON, by name.
        self.transports: dict[str, str] = {}
        #: Whether it keeps logs from being trimmed; False once another reader of its name does.
        self.holds = True
        #: Up to where a topic's messages are not needed any more; by default up to where they were handed on.
        self.needed_from: Callable[[str], Id] = self.passed

    def passed(self, topic: str) -> Id:
        """The last ID of a topic that was handed on, or that is none of this reader's business."""
        return self._merging.logs[topic].passed

    def places(self) -> dict[str, Id]:
        """`passed`, of all topics that are read."""
        return {topic: log.passed for topic, log in self._merging.logs.items()}

    def spans(self) -> dict[str, list[LogSpan]]:
        """Return the stretches of each topic that are still to be read."""
        return {topic: list(log.spans) for topic, log in self._merging.logs.items()}

    @property
    def log_keys(self) -> list[str]:
        """The Redis keys of the logs that are read."""
        return [log.name.decode() for log in self._merging.logs.values()]

    @property
    def is_at_end(self) -> bool:
        """Return whether all that there was is read and handed on."""
        return not (self._posted or self._merging.waits or self.is_behind)

    @property
    def number(self) -> int:
        """Number of topics that are read."""
        return len(self._merging.logs)

    @property
    def size(self) -> int:
        """Bytes of an entry, about."""
        return self._merging.size

    @property
    def settled(self) -> Id:
        """The last ID that had been given when it began: places up to there are what they will be."""
        return self._clock

    @property
    def floor(self) -> Id:
        """Place where a topic that comes later begins."""
        spans = spans_of(self._asked, "~", self._clock, self._kept)
        return spans[0].after if spans else self._clock

    # -- topics

    async def open(self, pipeline: AnyPipeline) -> None:
        """Find the topics and the places to begin at.

        Raises:
            UnknownTopic: there is neither a topic nor a queue of this name, or only a queue and `reads_queues` is
                False. ConflatedName: it is a conflated topic's.
            BookmarkNotFound: the log has not everything any more, or a bookmark's message is not here, and `not_found`
                says ``fail``; or the bookmark ends a range.
            DefinitionError: a range up to now, or from now on, ends before it begins.
        """
        self._asked = await self._located(self._asked)
        await self._look_at_clock()
        check_ranges(self._asked.ranges, self._past[0], self._origin)
        await self._refresh(pipeline)
        self._held = time.monotonic()
        self._merging.begin()
        spans = spans_of(self._asked, "~", self._clock, self._kept)
        self._final = spans[-1].last if spans else FIRST

    async def _located(self, asked: BookmarkSpec) -> BookmarkSpec:
        """The same with the places here of bookmarks of other origins; something else for those that are not here."""
        foreign = [end for end in asked.ends if end.bookmark is not None and end.bookmark.origin != self._origin]
        if not foreign:
            return asked
        is_by_number = any(isinstance(end.bookmark, PublisherBookmark) for end in foreign)
        topics = self._topics(await catalog_calls.catalog()) if is_by_number else None
        bookmarks = [end.bookmark for end in foreign if end.bookmark is not None]
        named = await find_bookmarks(self._origin, bookmarks, topics)
        known = {
            end: replace(end, bookmark=found.bookmark, here=found.id)
            for end, found in zip(foreign, named, strict=True)
            if found.id
        }
        unknown = next((found for found in named if not found.id), None)
        if unknown is not None:
            text = f"bookmark {str(unknown.bookmark)!r} is not here: {unknown.absence}"
            last = [each.end for each in asked.ranges if each.end in foreign and each.end not in known]
            if last or self._not_found == "fail":
                raise BookmarkNotFound(f"{text}; allowed: one of a message that is here, or a time")
            _log.warning("%s; beginning at %s", text, self._not_found)
            known |= {end: BookmarkEnd(self._not_found) for end in foreign if end not in known}

        def located(end: BookmarkEnd) -> BookmarkEnd:
            return known.get(end, end)

        ranges = tuple(each._replace(start=located(each.start), end=located(each.end)) for each in asked.ranges)
        return BookmarkSpec(tuple(located(end) for end in asked.starts), ranges)

    async def _look_at_clock(self) -> None:
        """Note the last ID that was given, and up to where none can come any more."""
        clock = await last_given_id(self._instance)
        now = await server_time()
        if self._past == FIRST:
            self._clock = clock
        self._past = max(self._past, clock, (now - 1, _LAST))

    async def _refresh(self, pipeline: AnyPipeline) -> None:
        """Take in topics that came."""
        self._checked = time.monotonic()
        version = await catalog_version(self._instance) or 0
        if version == self._version:
            return
        catalog = await catalog_calls.catalog()
        topics = [topic for topic in self._topics(catalog) if topic not in self._merging.logs]
        came = [self._log_of(topic) for topic in topics]
        lasts = await _each(self._shared(pipeline), [last_id(self._instance, log_of(log.topic)) for log in came])
        for log, last in zip(came, lasts, strict=True):
            # What a topic has that came after this reader is news.
            now = last if self._version < 0 else self._clock
            log.begin(spans_of(self._asked, log.topic, now, self._kept))
        self.types.update((topic, catalog.message_type(topic)) for topic in self._topics(catalog))
        self._merging.logs.update((log.topic, log) for log in came)
        await self._hold(pipeline, came)
        await self._find(came, begins=True)
        self._version, self.transports = catalog.version, catalog.transports

    def _topics(self, catalog: Catalog) -> list[str]:
        """The topics that are read, of those that there are."""
        may_come = not self._asked.ranges
        begins = self._version < 0
        return topics_of(self.name, catalog, reads_queues=self._reads_queues, begins=begins, may_come=may_come)

    def _log_of(self, topic: str) -> MergedLog:
        return MergedLog(topic, log_key(self._instance, topic), deque(), FIRST, FIRST)

    async def _find(self, logs: Sequence[MergedLog], *, begins: bool) -> None:
        """See that logs have everything from where they are to be read (on); they are held by now."""
        some = [log for log in logs if log.spans]
        if not some:
            return
        gone = await removed_ids(self._instance, [log.topic for log in some])
        for log, removed in zip(some, gone, strict=True):
            # The epoch is whatever there is when it begins.
            is_epoch = begins and log.spans[0].after == FIRST
            if removed > max(log.cursor, log.removed) and not is_epoch:
                self._miss(log, removed, begins=begins)
            log.removed = removed

    def _miss(self, log: MergedLog, removed: Id, *, begins: bool) -> None:
        """Something behind a log's cursor was removed: do what was asked for then."""
        text = (
            f"topic {log.topic!r} was trimmed up to {id_text(removed)}, behind {id_text(log.cursor)}, from where "
            f"{self.name!r} was to be read"
        )
        if self._not_found == "fail":
            raise BookmarkNotFound(f"{text}; allowed: a later bookmark, or bookmark_not_found 'epoch' or 'now'")
        skips = begins and self._not_found == "now"
        _log.warning("%s: going on with what %s", text, "comes now" if skips else "is there")
        self.missed.add(log.topic)
        if skips:
            spans = [LogSpan(max(span.after, self._clock), span.last) for span in log.spans]
            log.begin([span for span in spans if span.last is None or span.after < span.last])

    def _shared(self, pipeline: AnyPipeline | None) -> AnyPipeline | None:
        """The channel, if other calls may be made on it: that it broke must not escape who waits there for the disk."""
        return pipeline if self._durability is None else None

    # -- holding

    async def _hold(self, pipeline: AnyPipeline | None, logs: Sequence[MergedLog]) -> None:
        """Keep from being trimmed what is not read yet."""
        if not logs or not self.holds:
            return
        ids = [self.needed_from(log.topic) for log in logs]
        texts = [id_text(next_id(stream_id)) for stream_id in ids]
        wanted = [hold(log.topic, self._holder, text, _HOLD) for log, text in zip(logs, texts, strict=True)]
        await _each(self._shared(pipeline), wanted)

    def cursors(self) -> dict[str, tuple[Id, int]]:
        """Of each topic that is read on: the last ID that was read, and how many entries were."""
        return {topic: (log.cursor, log.count) for topic, log in list(self._merging.logs.items()) if log.spans}

    def abandon(self) -> None:
        """Forget what was asked for and not given: it is asked for again, on another channel."""
        self._posted.clear()
        if self._durability is not None:
            self._durability.forget()

    @property
    def is_behind(self) -> bool:
        """Return whether there was already more than the last page had."""
        return any(log.spans and log.known is not None for log in self._merging.logs.values())

    @property
    def is_hold_due(self) -> bool:
        """Return whether it is time to hold the logs again."""
        return time.monotonic() >= self._held + _HOLD_AGAIN

    async def hold(self, pipeline: AnyPipeline | None) -> None:
        """Hold the logs again; where that comes so late that they may have been trimmed, see whether they were."""
        now = time.monotonic()
        open_logs = [log for log in self._merging.logs.values() if log.spans]
        await self._hold(pipeline, open_logs)
        if now >= self._held + _HOLD / 1000:
            await self._find(open_logs, begins=False)
        self._held = now

    async def _attend(self, pipeline: AnyPipeline) -> None:
        """Do what is to be done from time to time."""
        now = time.monotonic()
        if now >= self._checked + _CHECK:
            await self._refresh(pipeline)
        if self.is_hold_due:
            await self.hold(pipeline)

    async def close_keeping_logs(self, pipeline: AnyPipeline) -> None:
        """End, and hold the logs as long as for a reader that died; the channel is empty."""
        self._posted.clear()
        await self._hold(pipeline, [log for log in self._merging.logs.values() if log.spans])

    async def close(self, pipeline: AnyPipeline | None) -> None:
        """End, and let the logs go; the channel is empty."""
        self._posted.clear()
        if self.holds:
            await _each(pipeline, [hold(topic, self._holder, None) for topic in self._merging.logs])

    # -- pages

    async def read(self, pipeline: AnyPipeline, wait: float = 0.0) -> list[Entry]:
        """The next entries; possibly none although more come. What is given was read: it does not come again.

        Args:
            pipeline: of the reader's own, on which it reads ahead.
            wait: seconds to wait for news, if there are none.

        Raises:
            BookmarkNotFound: the logs were trimmed under a reader that had not been heard of for a while.
        """
        await self._attend(pipeline)
        entries: list[Entry] = []
        if self._final is not None:
            # The end of a range is noticed in time.
            wait = min(wait, _CHECK / 10)
        if self._merging.next_logs():
            entries = await self._next_page(pipeline, wait)
        elif wait > 0 and not self._is_complete():
            await Pause(wait)
        self.completed = self._is_complete()
        if not entries and self._final is not None and self._past < self._final:
            await self._look_at_clock()
        return entries

    def _is_complete(self) -> bool:
        """Return whether everything is read that was asked for."""
        return self._final is not None and self._past >= self._final and self._merging.is_read

    async def _next_page(self, pipeline: AnyPipeline, wait: float) -> list[Entry]:
        request: Request | None = None
        reply: LogPages | None = None
        while self._posted:
            request = self._posted.popleft()
            try:
                reply = await Collect(pipeline)
            except Unavailable:
                # Reading takes nothing away: it is asked for again.
                self._posted.clear()
                request = None
        if request is None or not reply:
            request = self._merging.next_page(self._past)
            wait = 0.0 if self._merging.waits else wait
            if self._durability is not None:
                page = self._page(request, wait)
                found = await self._durability.read(pipeline, request, page, wait)
                return self._merging.take(*found) if found is not None else []
            reply = await self._page(request, wait)
        return self._merging.take(request, reply)

    @staticmethod
    def _page(request: Request, wait: float) -> Call[LogPages]:
        return read_logs([(log.name, id_text(log.cursor)) for log in request.logs], request.count, wait)

    async def read_ahead(self, pipeline: AnyPipeline) -> None:
        """Ask for the next page already, if there is one: while what `read` gave is handled, it travels."""
        logs = self._merging.next_logs()
        if self._posted or self._durability is not None or all(log.known is None for log in logs):
            return
        request = self._merging.next_page(self._past)
        try:
            await Post(pipeline, self._page(request, 0.0))
        except Unavailable:
            return
        self._posted.append(request)


async def _each(pipeline: AnyPipeline | None, wanted: Sequence[Call[T]]) -> list[T]:
    """Run calls that may be repeated, many in one round trip."""
    replies: list[T] = []
    while len(replies) < len(wanted):
        some = wanted[len(replies) : len(replies) + _AHEAD]
        if len(some) == 1 or pipeline is None or pipeline.open_calls:
            replies.append(await some[0])
            continue
        try:
            for call in some:
                await Post(pipeline, call)
            for _ in some:
                replies.append(await Collect(pipeline))  # noqa: PERF401  (each is a step of the flow)
        except Unavailable:
            replies.append(await wanted[len(replies)])
    return replies
