"""Looking at a queue without taking from it: walking over its messages, queries, acknowledging by filter.

A walk reads a queue in bounded steps, up to the end that stood when it began, while everybody else goes on. Each
message is seen at most once. One that is leased or settled before its step is not seen, and neither is one that comes
back behind the walk; whatever stays available from the walk's beginning to its end is seen. All of it is flows.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.base.errors import DefinitionError, Unavailable
from ampsq.base.message_types import JSON
from ampsq.base.values import check_text, shown
from ampsq.expressions import Document, parse
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.definitions import read_queue
from ampsq.queues.query import QueryResult, SowMessage, parse_query_filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.base.message_types import MessageType
    from ampsq.definitions.queue import Queue
    from ampsq.definitions.stored import StoredQueue
    from ampsq.expressions import Expression
    from ampsq.protocol.calls.browse import Browsed, BrowsePage, Walk
    from ampsq.protocol.calls.queues import Verb
    from ampsq.protocol.context import InstanceContext
    from ampsq.queues.query import Query

__all__ = ["Walker", "ack_matching", "sow_queue"]

_VERBS: Final[Mapping[str, Verb]] = {"ack": "acknowledged", "cancel": "cancelled", "expire": "expired"}
#: Calls of one page.
_READS: Final = 20
#: Sorts behind every topic's name.
_LAST_TOPIC: Final = "~"
_LAST_REF: Final = b"~"
#: The sources that have what was read, each in an order of its own.
_SPREAD: Final = ("ready", "sorted")


class _Source:
    """One source of a walk, read page by page.

    Attributes:
        name: as the script `browse` knows it.
    """

    def __init__(self, queue: str, name: str, after: str, until: str, filter: str) -> None:  # noqa: A002
        self._queue, self.name, self._until, self._filter = queue, name, until, filter
        self._after: str | None = after

    @property
    def finished(self) -> bool:
        """Return whether everything was read."""
        return self._after is None

    async def read(self) -> list[Browsed]:
        """The next messages; possibly none although more come."""
        if self._after is None:
            return []
        page: BrowsePage = await browse_calls.browse(self._queue, self.name, self._after, self._until, self._filter)
        self._after = page.next
        return page.messages


class _Merge:
    """The logs of several topics, read as one in the order in which the instance received the messages."""

    def __init__(self, logs: dict[str, _Source]) -> None:
        self._logs = logs
        self._unread = deque(logs)
        self._heads: list[tuple[bytes, str]] = []
        self._buffers: dict[str, deque[Browsed]] = {}

    async def read(self) -> list[Browsed] | None:
        """The next messages; possibly none although more come; None at the end."""
        for _ in range(min(len(self._unread), _READS)):
            await self._fill(self._unread[0])
        if self._unread:
            return []
        merged: list[Browsed] = []
        while self._heads and len(merged) < BATCH:
            _, topic = heapq.heappop(self._heads)
            buffer = self._buffers[topic]
            merged.append(buffer.popleft())
            if buffer:
                heapq.heappush(self._heads, (buffer[0].ref, topic))
            elif not self._logs[topic].finished:
                # Nothing later may go first before this topic's next message is known.
                self._unread.append(topic)
                return merged
        return merged or None

    async def _fill(self, topic: str) -> None:
        messages = await self._logs[topic].read()
        # Not before it was answered: a walk that was interrupted goes on where it was.
        self._unread.popleft()
        if messages:
            self._buffers[topic] = deque(messages)
            heapq.heappush(self._heads, (messages[0].ref, topic))
        elif not self._logs[topic].finished:
            self._unread.append(topic)


class Walker:
    """A walk over one queue, a page at a time.

    What was read and waits comes first, then what is unread, the topics merged in the order in which the instance
    received the messages: together that is the order of delivery of a queue without filters, priorities and barriers.
    Of a queue with `target_queue_depth` only the active part is walked.

    Args:
        context: where the queue is.
        queue: its name.
        filter: only messages that match; default all.
        available: those that may be delivered; default True.
        leased: those that are leased, at the end; default False.
        by_ref: merge what came back with what has its place, both in the order in which the instance received them:
            of a queue with filters alone, neither priorities nor barriers, that is the order of delivery. All that
            came back is read first; default False.

    Attributes:
        placed: whether the queue delivers in another order than that of the walk; known after the first page.
        bounded: whether the queue has a target depth; known after the first page.
        type: the queue's message type; known after the first page.
        cursors: topic -> up to where the queue had read it when the walk began; known after the first page.
        end: the ID up to which the walk goes; known after the first page.
    """

    def __init__(
        self,
        context: InstanceContext,
        queue: str,
        filter: Expression | None = None,  # noqa: A002
        *,
        available: bool = True,
        leased: bool = False,
        by_ref: bool = False,
    ) -> None:
        self._context, self._queue, self._expression = context, queue, filter
        self._available, self._leased, self._by_ref = available, leased, by_ref
        self._returned: list[Browsed] = []
        self._stages: deque[_Source | _Merge] | None = None
        self._limits: dict[str, bytes] = {}
        self._room: int | None = None
        self._reach: bytes = _LAST_REF
        self._seen: set[bytes] = set()
        self.placed = self.bounded = False
        self.type: MessageType = JSON
        self.cursors: Mapping[str, str] = {}
        self.end = ""

    async def page(self) -> list[Browsed] | None:
        """The next messages, a few calls' worth at most, possibly none; None at the end of the walk.

        Raises:
            UnknownQueue: there is no such queue.
        """
        if self._stages is None:
            self._stages = await self._begin()
        if not self._stages:
            return None
        stage = self._stages[0]
        if isinstance(stage, _Merge):
            merged: list[Browsed] | None = await stage.read()
            if merged is None or self._room == 0:
                self._stages.popleft()
            return self._active(merged or [])
        messages: list[Browsed] = await stage.read()
        if stage.finished:
            self._stages.popleft()
        return self._in_turn(stage, self._once(messages))

    def _in_turn(self, stage: _Source, messages: list[Browsed]) -> list[Browsed]:
        """Return the next messages in the order of refs: returned ones wait for their turn among those with a place."""
        if not (self._by_ref and self.placed) or stage.name not in _SPREAD:
            return messages
        self._returned += messages
        if stage.name == "ready" or not (messages or stage.finished):
            return []
        self._returned.sort(key=_by_ref)
        number = len(self._returned) if stage.finished else bisect_right(self._returned, messages[-1].ref, key=_by_ref)
        turn, self._returned = self._returned[:number], self._returned[number:]
        return turn

    async def _begin(self) -> deque[_Source | _Merge]:
        walk: Walk = await browse_calls.begin_walk(self._queue)
        self.placed, self.bounded, self._room = walk.sorted, walk.room is not None, walk.room
        self.cursors, self.end, self.type = walk.cursors, walk.end, walk.type
        self._limits = {topic: ref_of(topic, cursor).encode() for topic, cursor in walk.cursors.items()}
        self._reach = ref_of(_LAST_TOPIC, walk.end).encode()
        asked = "" if self._expression is None else self._expression.json
        stages: deque[_Source | _Merge] = deque()
        if self._available:
            names = ("ready", "sorted", "held") if walk.sorted else ("ready",)
            stages += [_Source(self._queue, name, "", walk.end, asked) for name in names]
            # How many messages come before one is known only where all of them are read.
            within = "" if self.bounded else asked
            stages.append(
                _Merge(
                    {
                        topic: _Source(self._queue, f"log {topic}", cursor, walk.end, within)
                        for topic, cursor in walk.cursors.items()
                    }
                )
            )
        if self._leased:
            stages.append(_Source(self._queue, "leases", "", walk.end, asked))
        return stages

    def _once(self, messages: list[Browsed]) -> list[Browsed]:
        """Of what was read behind the cursors or is leased: what belongs to this walk and was not seen."""
        fresh = []
        for found in messages:
            limit = self._limits.get(parse_ref(found.ref.decode())[0], b"")
            # What was unread when the walk began is met in its log; leased meanwhile, it is met among the leases.
            if found.ref <= (self._reach if found.holder else limit) and found.ref not in self._seen:
                self._seen.add(found.ref)
                fresh.append(found)
        return fresh

    def _active(self, merged: list[Browsed]) -> list[Browsed]:
        """Of what is unread: what is in the active part and matches."""
        if self._room is not None:
            merged = merged[: self._room]
            self._room -= len(merged)
            if not self._room and merged:
                self._reach = merged[-1].ref
            if self._expression is not None:
                matches = self._expression.matches
                merged = [found for found in merged if matches(self._context.document(found, self.type))]
        if self._leased:
            self._seen.update(found.ref for found in merged)
        return merged


def _by_ref(found: Browsed) -> bytes:
    return found.ref


async def sow_queue(context: InstanceContext, queue: Queue | StoredQueue, query: Query) -> QueryResult:
    """Query a queue's available messages, in the order of delivery if the query names none.

    Nothing is leased, and every message costs the server its way through the filter: `top_n` without `order_by` stops
    early, except for a queue with priorities or barriers, where what comes last may be the first.

    Raises:
        UnknownQueue: there is no such queue any more.
    """
    plain = not queue.priority and not queue.barrier_expression
    walker = Walker(context, queue.name, query.filter, by_ref=plain)
    priority = parse(queue.priority, "priority") if queue.priority else None
    page: list[Browsed] | None = await walker.page()
    in_order = plain or not walker.placed
    selection, number = QueryResult(query, in_order=in_order), 0
    while page is not None and not selection.full:
        for found in page:
            document = context.document(found, walker.type)
            number += 1
            rank = (0, number) if in_order else (_urgency(priority, document), found.ref)
            selection.add(SowMessage.of(found, context.origin, type=walker.type), document, rank)
        page = await walker.page()
    return selection


def _urgency(priority: Expression | None, document: Document) -> int:
    """Less is sooner; what has no priority is last."""
    value = priority.priority(document) if priority is not None else None
    return 1 if value is None else -value


async def ack_matching(
    context: InstanceContext,
    queue: str,
    filter: str | None,  # noqa: A002
    option: str = "ack",
    *,
    reason: str = "",
    dry_run: bool = False,
) -> int:
    """Settle all messages of a queue that match a filter, available ones and leased ones.

    Of a queue with `target_queue_depth` only the active part. What came after the beginning is left alone, and so is
    what is delayed, by a `cancel` or a give-back until later.

    Args:
        context: where the queue is.
        queue: its name.
        filter: which messages; None: all.
        option: ``ack``; ``cancel``, leased ones only; ``expire``.
        reason: why, checked; "" for nothing.
        dry_run: only count.

    Returns:
        How many messages were settled, or would be. One that somebody else settled meanwhile, or that `leasing`
        ``strict`` protects, does not count, and is no error.

    Raises:
        DefinitionError: the filter or the option is wrong. UnknownQueue: there is no such queue.
        Unavailable: no answer; some may have been settled, and doing it again settles the rest (with ``cancel``, a
            message may be cancelled twice).
    """
    if not isinstance(option, str) or option not in _VERBS:
        raise DefinitionError(f"option={shown(option)}: allowed are 'ack', 'cancel' and 'expire'")
    check_text("queue", queue)
    leased = not (dry_run and (await _protects_leases(context, queue)))
    wanted = None if filter is None else parse_query_filter(filter)
    walker = Walker(context, queue, wanted, available=option != "cancel", leased=leased)
    settled, waiting = 0, list[bytes]()
    try:
        while (page := (await walker.page())) is not None:
            waiting += [found.ref for found in page]
            while len(waiting) >= BATCH:
                settled += await _settle(queue, option, waiting[:BATCH], reason, dry_run=dry_run)
                del waiting[:BATCH]
        if waiting:
            settled += await _settle(queue, option, waiting, reason, dry_run=dry_run)
    except Unavailable as error:
        error.may_have_run = error.may_have_run or settled > 0
        raise
    return settled


async def _protects_leases(context: InstanceContext, queue: str) -> bool:
    """Return whether a queue lets only their holders settle leases; False where there is no such queue."""
    definition = await read_queue(context.instance, queue)
    return definition is not None and definition.leasing == "strict"


async def _settle(queue: str, option: str, refs: list[bytes], reason: str, *, dry_run: bool) -> int:
    if dry_run:
        return len(refs)
    refused = await calls.settle(_VERBS[option], queue.encode(), refs, [b""] * len(refs), reason=reason)
    return len(refs) - len(refused)
