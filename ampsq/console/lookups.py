"""Facts that pages show of single messages, as flows: bounded looks that change nothing."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.calls.queue_history import read_history
from ampsq.protocol.calls.queue_latencies import read_latencies
from ampsq.protocol.encoding import decode_body, read_headers
from ampsq.protocol.entries import body_in, headers_in, read_entry
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.streams import find_entry, log_of
from ampsq.queues.browse import Walker
from ampsq.queues.query import SowMessage, parse_query_filter

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.browse import Browsed
    from ampsq.protocol.calls.queue_history import HistorySample
    from ampsq.protocol.calls.queue_latencies import LatencyBucket
    from ampsq.protocol.context import InstanceContext
    from ampsq.protocol.entries import RawEntry

__all__ = ["Body", "Browse", "QueuePast", "browse", "read_body", "read_past"]

#: Characters of a body in a table, and on its own page.
_SHORT: Final = 160
_LONG: Final = 65_536


@dataclass(frozen=True, slots=True)
class Body:
    """A message as its page shows it.

    Attributes:
        bookmark: its name.
        text: the body, JSON over several lines; None where the log does not have it.
        length: of the body, in bytes.
        headers: those that it was published with.
    """

    bookmark: Bookmark
    text: str | None
    length: int
    headers: dict[str, str]

    @property
    def is_cut(self) -> bool:
        """Return whether the text is its beginning alone."""
        return self.text is not None and len(self.text) == _LONG and self.text.endswith("…")


@dataclass(frozen=True, slots=True)
class Row:
    """A message in a table.

    Attributes:
        message: the message.
        text: its body, in short.
        holder: the subscription that holds it; "" when it waits.
    """

    message: SowMessage
    text: str
    holder: str


@dataclass(frozen=True, slots=True)
class Browse:
    """The result of a look at a queue.

    Attributes:
        leased: messages that subscriptions hold.
        waiting: messages that may be delivered, in the order of the walk.
        is_whole: whether nothing was left out.
        was_cut: whether the time was over before so many were found as were asked for.
    """

    leased: tuple[Row, ...]
    waiting: tuple[Row, ...]
    is_whole: bool
    was_cut: bool


async def browse(context: InstanceContext, queue: str, filter: str | None, limit: int, seconds: float) -> Browse:  # noqa: A002
    """Look at messages of a queue, those that are leased and those that wait, up to `limit` of each, for so long.

    Raises:
        UnknownQueue: there is none of that name. ExpressionError: the filter is wrong.
    """
    expression = parse_query_filter(filter) if filter else None
    until = time.monotonic() + seconds
    leased, more = await _rows(Walker(context, queue, expression, available=False, leased=True), context, limit, until)
    walker = Walker(context, queue, expression, by_ref=True)
    waiting, further = await _rows(walker, context, limit, until)
    is_cut = time.monotonic() >= until and (more or further)
    return Browse(tuple(leased), tuple(waiting), not more and not further, is_cut)


async def _rows(walker: Walker, context: InstanceContext, limit: int, until: float) -> tuple[list[Row], bool]:
    """The first messages of a walk, and whether there may be more."""
    found: list[Row] = []
    page: list[Browsed] | None = []
    while len(found) <= limit and time.monotonic() < until:
        page = await walker.page()
        if page is None:
            break
        found += [_row(each, context, walker.type) for each in page[: limit + 1 - len(found)]]
    return found[:limit], page is not None


def _row(found: Browsed, context: InstanceContext, message_type: MessageType) -> Row:
    message = SowMessage.of(found, context.origin, type=message_type)
    return Row(message, short_text(message.raw, message.data), found.holder.decode())


def short_text(raw: bytes, data: object) -> str:
    """A body on one line, cut where it is long."""
    text = raw.decode(errors="backslashreplace") if isinstance(data, bytes) else _json(data, None)
    return cut_text(text)


def cut_text(text: str) -> str:
    """A text on one line, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def long_text(raw: bytes, data: object) -> str:
    """A body over several lines, cut where it is very long."""
    text = raw.decode(errors="backslashreplace") if isinstance(data, bytes) else _json(data, 2)
    if len(text) > _LONG and not isinstance(data, bytes):
        # What is deep is mostly the spaces before its lines.
        text = _json(data, None)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def _json(data: object, indent: int | None) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, TypeError, RecursionError):
        return str(data)


async def read_body(context: InstanceContext, text: Bookmark | str, message_type: MessageType) -> Body:
    """Read a message's body from the log.

    Raises:
        DefinitionError: it is no bookmark.
    """
    named = await find_bookmark(context.origin, text)
    entry: RawEntry | None = None
    if named.id:
        entry = await find_entry(context.instance, log_of(named.bookmark.topic), named.id)
    if entry is None:
        return Body(named.bookmark, None, 0, {})
    fields, _ = read_entry(entry[1])
    raw = body_in(fields)
    if raw is None:
        told = {_text(name): _text(value) for name, value in fields.items()}
        return Body(named.bookmark, _json(told, 2), sum(map(len, fields.values())), {})
    headers = headers_in(fields)
    data = decode_body(raw, message_type)
    return Body(named.bookmark, long_text(raw, data), len(raw), read_headers(headers))


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class QueuePast:
    """Figures of a queue over a range of time.

    Attributes:
        samples: how it was, the earliest first.
        latencies: how long messages took, by buckets of time, the earliest first.
        now: ms of the server's clock.
    """

    samples: list[HistorySample]
    latencies: list[LatencyBucket]
    now: int


async def read_past(instance: str, queue: str, range_: str) -> QueuePast:
    """Read what a queue's figures were over a range of time."""
    now = await server_time()
    return QueuePast(
        await read_history(instance, queue, range_, now), await read_latencies(instance, queue, range_, now), now
    )
