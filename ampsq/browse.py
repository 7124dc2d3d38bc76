"""Looking at a queue without taking from it: walking over its messages, queries, acknowledging by filter.

A walk reads a queue in bounded steps, up to the end that stood when it began, while everybody else goes on. Each
message is seen at most once. One that is leased or settled before its step is not seen, and neither is one that comes
back behind the walk; whatever stays available from the walk's beginning to its end is seen. All of it is flows.
"""

from __future__ import annotations

import heapq
import json
import re
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ampsq import calls
from ampsq.delivery import decode
from ampsq.errors import DefinitionError, ExpressionError
from ampsq.expressions import Document, parse
from ampsq.expressions.scalars import first
from ampsq.flow import command
from ampsq.models import Queue
from ampsq.rows import place_of
from ampsq.schema import BATCH, FIELDS, key
from ampsq.values import Bookmark, parse_ref, ref_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.calls import Browsed, Page, Verb, Walk
    from ampsq.expressions import Expression
    from ampsq.flow import Flow

__all__ = ["Query", "Scene", "SowMessage", "Walker", "ack_matching", "check_text", "select", "sow_queue"]

_BODY: Final = FIELDS["body"].encode()
_HEADERS: Final = FIELDS["headers"].encode()
_VERBS: Final[Mapping[str, Verb]] = {"ack": "acknowledged", "cancel": "cancelled", "expire": "expired"}
#: What a query keeps beyond the messages that it wants before it drops the last ones.
_SPARE: Final = 2_000
_MOST: Final = 1_000_000_000
_DIRECTION = re.compile(r"(?is)(.*\S)\s+(asc|desc)\s*")
#: Characters of a body that a message's representation has.
_SHOWN: Final = 80
#: Calls of one page.
_READS: Final = 20
#: Sorts behind every topic's name.
_LAST_TOPIC: Final = "~"
_LAST_REF: Final = b"~"
#: The sources that have what was read, each in an order of its own.
_SPREAD: Final = ("ready", "sorted")


class SowMessage:
    """A message, or the row of a view, as a query found it; nothing can be done to it.

    Attributes:
        raw: the body as it was published; for an entry that somebody wrote without ampsq, its fields as JSON.
        topic: the topic that it was published to; of a row, the view's name.
        bookmark: its public identity; None for a row.
        headers: the headers that it was published with.
        deliveries: how often it was delivered before.
    """

    __slots__ = ("bookmark", "deliveries", "headers", "raw", "topic")

    def __init__(
        self, raw: bytes, topic: str, bookmark: Bookmark | None, headers: dict[str, str], deliveries: int
    ) -> None:
        self.raw = raw
        self.topic = topic
        self.bookmark = bookmark
        self.headers = headers
        self.deliveries = deliveries

    @property
    def data(self) -> Any:
        """The body decoded: what JSON says, or the bytes as they are when they are not JSON."""
        try:
            return decode(self.raw)
        except ValueError:
            return self.raw

    def __repr__(self) -> str:
        text = repr(self.data)
        body = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return f"<SowMessage {self.bookmark or self.topic}: {body}, deliveries {self.deliveries}>"

    @classmethod
    def of(cls, found: Browsed, origin: str) -> SowMessage:
        """Make it of what a walk gave."""
        topic, stream_id = parse_ref(found.ref.decode())
        body = found.fields.get(_BODY)
        headers = found.fields.get(_HEADERS, b"") if body is not None else b""
        return cls(
            _as_json(found.fields) if body is None else body,
            topic,
            Bookmark.of(topic, origin, stream_id),
            json.loads(headers) if headers else {},
            found.deliveries,
        )


def _as_json(fields: Mapping[bytes, bytes]) -> bytes:
    # Bytes that are no text are written \udc80 to \udcff: JSON that can be turned back into them.
    plain = {name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in fields.items()}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class Scene:
    """Where messages are: the instance's name, and its origin."""

    instance: str
    origin: str

    def document(self, found: Browsed) -> Document:
        """What expressions read of a message that a walk or a look gave."""
        topic, stream_id = parse_ref(found.ref.decode())
        return Document(
            found.fields.get(_BODY),
            fields=found.fields,
            topic=topic,
            stream_id=stream_id,
            origin=self.origin,
            instance=self.instance,
            deliveries=found.deliveries,
        )


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
        """Whether everything was read."""
        return self._after is None

    def read(self) -> Flow[list[Browsed]]:
        """The next messages; possibly none although more come."""
        if self._after is None:
            return []
        page: Page = yield calls.browse(self._queue, self.name, self._after, self._until, self._filter)
        self._after = page.next
        return page.messages


class _Merge:
    """The logs of several topics, read as one in the order in which the instance received the messages."""

    def __init__(self, logs: dict[str, _Source]) -> None:
        self._logs = logs
        self._unread = deque(logs)
        self._heads: list[tuple[bytes, str]] = []
        self._buffers: dict[str, deque[Browsed]] = {}

    def read(self) -> Flow[list[Browsed] | None]:
        """The next messages; possibly none although more come; None at the end."""
        for _ in range(min(len(self._unread), _READS)):
            yield from self._fill(self._unread[0])
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

    def _fill(self, topic: str) -> Flow[None]:
        messages = yield from self._logs[topic].read()
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
        scene: where the queue is.
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
        cursors: topic -> up to where the queue had read it when the walk began; known after the first page.
        end: the ID up to which the walk goes; known after the first page.
    """

    def __init__(
        self,
        scene: Scene,
        queue: str,
        filter: Expression | None = None,  # noqa: A002
        *,
        available: bool = True,
        leased: bool = False,
        by_ref: bool = False,
    ) -> None:
        self._scene, self._queue, self._expression = scene, queue, filter
        self._available, self._leased, self._by_ref = available, leased, by_ref
        self._returned: list[Browsed] = []
        self._stages: deque[_Source | _Merge] | None = None
        self._limits: dict[str, bytes] = {}
        self._room: int | None = None
        self._reach: bytes = _LAST_REF
        self._seen: set[bytes] = set()
        self.placed = self.bounded = False
        self.cursors: Mapping[str, str] = {}
        self.end = ""

    def page(self) -> Flow[list[Browsed] | None]:
        """The next messages, a few calls' worth at most, possibly none; None at the end of the walk.

        Raises:
            UnknownQueue: there is no such queue.
        """
        if self._stages is None:
            self._stages = yield from self._begin()
        if not self._stages:
            return None
        stage = self._stages[0]
        if isinstance(stage, _Merge):
            merged: list[Browsed] | None = yield from stage.read()
            if merged is None or self._room == 0:
                self._stages.popleft()
            return self._active(merged or [])
        messages: list[Browsed] = yield from stage.read()
        if stage.finished:
            self._stages.popleft()
        return self._in_turn(stage, self._once(messages))

    def _in_turn(self, stage: _Source, messages: list[Browsed]) -> list[Browsed]:
        """What comes next in the order of refs: what came back is kept until its turn among what has its place."""
        if not (self._by_ref and self.placed) or stage.name not in _SPREAD:
            return messages
        self._returned += messages
        if stage.name == "ready" or not (messages or stage.finished):
            return []
        self._returned.sort(key=_by_ref)
        number = len(self._returned) if stage.finished else bisect_right(self._returned, messages[-1].ref, key=_by_ref)
        turn, self._returned = self._returned[:number], self._returned[number:]
        return turn

    def _begin(self) -> Flow[deque[_Source | _Merge]]:
        walk: Walk = yield calls.walk(self._queue)
        self.placed, self.bounded, self._room = walk.sorted, walk.room is not None, walk.room
        self.cursors, self.end = walk.cursors, walk.end
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
                merged = [found for found in merged if matches(self._scene.document(found))]
        if self._leased:
            self._seen.update(found.ref for found in merged)
        return merged


def _by_ref(found: Browsed) -> bytes:
    return found.ref


class _Order(NamedTuple):
    """One expression to order by."""

    expression: Expression
    descending: bool

    def place(self, document: Document) -> tuple[int, Any]:
        """Where a message stands; NaN and NULL are last in both directions."""
        value = first(self.expression.value(document))
        if value is None:
            kind = _NULL
        elif value != value:  # noqa: PLR0124
            kind = _NAN
        else:
            return (_LAST - _VALUE if self.descending else _VALUE), place_of(value)
        return (_LAST - kind if self.descending else kind), (0, 0)


_VALUE, _NAN, _NULL = range(3)
_LAST: Final = 2


class Query:
    """What a query asks for, checked.

    Args:
        filter: only what matches.
        order_by: expressions, each with ``ASC`` (default) or ``DESC`` behind it if need be. Numbers come before
            strings, then NaN, then NULL, which stays last with ``DESC``. What is equal keeps the order of delivery.
        top_n: at most this many.
        skip_n: without this many at the beginning; needs `order_by` and `top_n`.

    Raises:
        DefinitionError: an argument is wrong.
    """

    def __init__(
        self,
        filter: str | None = None,  # noqa: A002
        order_by: str | Sequence[str] = (),
        top_n: int | None = None,
        skip_n: int | None = None,
    ) -> None:
        self.filter = _filter(filter) if filter is not None else None
        self.order = [_order(text) for text in _listed(order_by)]
        self.top_n = _whole("top_n", top_n, 1)
        self.skip_n = _whole("skip_n", skip_n, 0)
        if skip_n is not None and (top_n is None or not self.order):
            raise DefinitionError(
                f"skip_n={skip_n!r} needs top_n, how many to give after those skipped, and order_by, since without an "
                "order nobody knows which ones they are; allowed: sow(..., order_by='/price DESC', top_n=10, skip_n=20)"
            )


def _whole(name: str, value: object, least: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST):
        return value
    raise DefinitionError(f"{name}={shown(value)}: allowed is a whole number from {least} to {_MOST}")


def check_text(what: str, value: object) -> None:
    """Refuse what is no text.

    Raises:
        DefinitionError: it is none.
    """
    if not isinstance(value, str):
        raise DefinitionError(f"{what}: {shown(value)} is not a text; allowed: a text")


def _filter(text: object) -> Expression:
    if not isinstance(text, str):
        raise DefinitionError(f"filter={shown(text)} is not a text; allowed: an expression, as in '/price > 10'")
    return parse(text, "query")


def _listed(order_by: object) -> Sequence[object]:
    if order_by is None or isinstance(order_by, str):
        return [order_by] if order_by is not None else ()
    if not isinstance(order_by, list | tuple):
        raise DefinitionError(
            f"order_by={shown(order_by)}: allowed is an expression, as in '/price DESC', or a list of such texts"
        )
    return order_by


def _order(text: object) -> _Order:
    if not isinstance(text, str):
        raise DefinitionError(f"order_by: {shown(text)} is not a text; allowed: one as in '/price DESC', or a list")
    found = _DIRECTION.fullmatch(text)
    source, direction = (found[1], found[2]) if found else (text, "asc")
    try:
        return _Order(parse(source, "query"), direction.lower() == "desc")
    except ExpressionError as fault:
        rest = source[fault.column - 1 :].strip()
        if re.match(r"(?i)((asc|desc)\b)?\s*,", rest):
            reason = "one expression each: give --order-by again; in Python, a list as ['/price DESC', '/qty']"
        elif re.fullmatch(r"[A-Za-z]+", rest) and fault.column > 1 and rest.lower() not in ("asc", "desc"):
            reason = f"{rest!r} is no direction; allowed behind an expression: ASC (default) or DESC"
        else:
            raise
        raise ExpressionError(reason, text, fault.column) from None


#: Places by each order, rank, message.
_Found: TypeAlias = "tuple[tuple[tuple[int, Any], ...], Any, SowMessage]"


class _Selection:
    """What a query has found so far."""

    def __init__(self, query: Query, *, in_order: bool) -> None:
        self._query = query
        self._limit = None if query.top_n is None else query.top_n + (query.skip_n or 0)
        # What comes in the order of delivery is all there as soon as there is enough of it.
        self._sorts = bool(query.order) or not in_order
        self._found: list[_Found] = []

    @property
    def full(self) -> bool:
        """Whether nothing that comes could still matter."""
        return not self._sorts and self._limit is not None and len(self._found) >= self._limit

    def add(self, message: SowMessage, document: Document, rank: Any) -> None:
        """Take one in; `rank` is its place in the order of delivery, where they do not come in that order."""
        self._found.append((tuple(order.place(document) for order in self._query.order), rank, message))
        if self._sorts and self._limit is not None and len(self._found) > self._limit + _SPARE:
            self._sort()
            del self._found[self._limit :]

    def _sort(self) -> None:
        if self._sorts:
            self._found.sort(key=lambda entry: entry[1])
        for number, order in reversed(list(enumerate(self._query.order))):
            self._found.sort(key=_place(number), reverse=order.descending)

    def messages(self) -> list[SowMessage]:
        """What the query gives."""
        self._sort()
        return [message for _, _, message in self._found[self._query.skip_n or 0 : self._limit]]


def _place(number: int) -> Callable[[_Found], tuple[int, Any]]:
    return lambda entry: entry[0][number]


def sow_queue(scene: Scene, queue: Queue, query: Query) -> Flow[list[SowMessage]]:
    """Query a queue's available messages, in the order of delivery if the query names none.

    Nothing is leased, and every message costs the server its way through the filter: `top_n` without `order_by` stops
    early, except for a queue with priorities or barriers, where what comes last may be the first.

    Raises:
        UnknownQueue: there is no such queue any more.
    """
    plain = not queue.priority and not queue.barrier_expression
    walker = Walker(scene, queue.name, query.filter, by_ref=plain)
    priority = parse(queue.priority, "priority") if queue.priority else None
    page: list[Browsed] | None = yield from walker.page()
    in_order = plain or not walker.placed
    selection, number = _Selection(query, in_order=in_order), 0
    while page is not None and not selection.full:
        for found in page:
            document = scene.document(found)
            number += 1
            rank = (0, number) if in_order else (_urgency(priority, document), found.ref)
            selection.add(SowMessage.of(found, scene.origin), document, rank)
        page = yield from walker.page()
    return selection.messages()


def _urgency(priority: Expression | None, document: Document) -> int:
    """Less is sooner; what has no priority is last."""
    value = priority.priority(document) if priority is not None else None
    return 1 if value is None else -value


def select(query: Query, rows: Iterable[tuple[str, bytes]], view: str) -> list[SowMessage]:
    """Query the rows of a view, group and JSON each; without `order_by` they come in the order of their groups."""
    selection = _Selection(query, in_order=False)
    for group, row in rows:
        document = Document(row, topic=view)
        if query.filter is None or query.filter.matches(document):
            selection.add(SowMessage(row, view, None, {}, 0), document, group)
    return selection.messages()


def ack_matching(
    scene: Scene,
    queue: str,
    filter: str,  # noqa: A002
    option: str = "ack",
    *,
    dry_run: bool = False,
) -> Flow[int]:
    """Settle all messages of a queue that match a filter, available ones and leased ones.

    Of a queue with `target_queue_depth` only the active part. What came after the beginning is left alone, and so is
    what is delayed, by a `cancel` or a give-back until later.

    Args:
        scene: where the queue is.
        queue: its name.
        filter: which messages.
        option: ``ack``; ``cancel``, leased ones only; ``expire``.
        dry_run: only count.

    Returns:
        How many messages were settled, or would be. One that somebody else settled meanwhile, or that `leasing`
        ``strict`` protects, does not count, and is no error.

    Raises:
        DefinitionError: the filter or the option is wrong. UnknownQueue: there is no such queue.
        Unavailable: no answer; some may have been settled, and doing it again settles the rest (with ``cancel``, a
            message may be cancelled twice).
    """
    if option not in _VERBS:
        raise DefinitionError(f"option={option!r}: allowed are 'ack', 'cancel' and 'expire'")
    check_text("queue", queue)
    leased = not (dry_run and (yield from _protects_leases(scene, queue)))
    walker = Walker(scene, queue, _filter(filter), available=option != "cancel", leased=leased)
    settled, waiting = 0, list[bytes]()
    while (page := (yield from walker.page())) is not None:
        waiting += [found.ref for found in page]
        while len(waiting) >= BATCH:
            settled += yield from _settle(queue, option, waiting[:BATCH], dry_run=dry_run)
            del waiting[:BATCH]
    if waiting:
        settled += yield from _settle(queue, option, waiting, dry_run=dry_run)
    return settled


def _protects_leases(scene: Scene, queue: str) -> Flow[bool]:
    """Whether a queue lets nobody but their holders settle leases; False where there is no such queue."""
    definition = yield command(["HGET", key(scene.instance, "queues"), queue], lambda reply: reply)
    return definition is not None and Queue.from_json(definition).leasing == "strict"


def _settle(queue: str, option: str, refs: list[bytes], *, dry_run: bool) -> Flow[int]:
    if dry_run:
        return len(refs)
    refused = yield calls.settle(_VERBS[option], queue.encode(), refs, [b""] * len(refs))
    return len(refs) - len(refused)
