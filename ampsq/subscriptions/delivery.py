"""A delivered message: read from the two strings of lua/lib/element.lua, settled through its subscription."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, overload

from ampsq.errors import DefinitionError
from ampsq.message_types import JSON, MessageType
from ampsq.messages.entry import bookmark_of, own_fields, read_entry, source_in
from ampsq.schema import BATCH, BYTES
from ampsq.values import Bookmark, Interval, parse_ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import timedelta

    from ampsq.expressions import Document
    from ampsq.subscriptions.async_subscription import AsyncSubscription
    from ampsq.subscriptions.sync_subscription import Subscription

__all__ = [
    "AsyncMessage",
    "Bookmarks",
    "Message",
    "MessageView",
    "cut",
    "decode",
    "decoded",
    "document_of",
    "encode",
    "encode_headers",
    "in_short",
]

#: Kinds of elements whose body is JSON: our own, and one of somebody else's fields.
_JSON_KINDS: Final = (b"b", b"f")

#: Characters of a body that a representation has.
_SHOWN: Final = 80
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)

encode = JSON.encode
"""Turn what a user publishes into a body of JSON; see `MessageType.encode`."""

decode = JSON.decode
"""Read JSON; see `MessageType.decode`."""


def cut(messages: Iterable[Any], size: int, message_type: MessageType = JSON) -> Iterator[list[bytes]]:
    """Encode messages and cut them into runs of at most `size` and about a megabyte.

    Raises:
        DefinitionError: the size is none, or a message cannot be encoded.
    """
    if not 1 <= size <= BATCH:
        raise DefinitionError(f"batch={size!r}: allowed is 1 to {BATCH}")
    bodies: list[bytes] = []
    total = 0
    for data in messages:
        body = data if type(data) is bytes else message_type.encode(data)
        bodies.append(body)
        total += len(body)
        if len(bodies) >= size or total >= BYTES:
            yield bodies
            bodies, total = [], 0
    if bodies:
        yield bodies


def decoded(body: bytes, message_type: MessageType = JSON) -> Any:
    """What a body says, or the bytes as they are when they are not of its type."""
    try:
        return message_type.decode(body)
    except ValueError:
        return body


def in_short(data: Any) -> str:
    """A decoded body as the representation of its message has it."""
    text = repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Turn headers, text to text, into their field; empty when there are none."""
    if not headers:
        return b""
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items()):
        raise DefinitionError(f"headers {headers!r}: allowed are names and values that are text")
    try:
        return _JSON.encode(dict(headers)).encode()
    except UnicodeEncodeError as error:
        raise DefinitionError(f"headers: {error}; allowed is text that UTF-8 can say") from error


def _pairs(text: bytes) -> list[bytes]:
    """Read ``<length>:<text>`` pairs, names and values in turn."""
    parts: list[bytes] = []
    at = 0
    while at < len(text):
        colon = text.index(b":", at)
        end = colon + 1 + int(text[at:colon])
        parts.append(text[colon + 1 : end])
        at = end
    return parts


def document_of(parts: list[bytes], body: bytes) -> Document:
    """A delivered message as expressions see it; instance and origin are unknown here."""
    from ampsq.expressions import Document  # noqa: PLC0415  (only a replaced subscription needs it)

    fields, source = read_entry(_pairs(b"".join(parts[6:])))
    topic, stream_id = parse_ref(parts[5].decode())
    found = None if parts[4] == b"f" else body
    kind = _type_of(parts)
    return Document(found, fields=fields, topic=topic, stream_id=stream_id, source=source, message_type=kind)


def _type_of(parts: list[bytes]) -> MessageType:
    return JSON if parts[4] in _JSON_KINDS else MessageType.parse(parts[4].decode())


class MessageView:
    """What a message is and how it was delivered; settling is in `Message` and `AsyncMessage`."""

    __slots__ = ("_body", "_origin", "_subscription", "parts", "settled")

    def __init__(self, parts: list[bytes], body: bytes, origin: str, subscription: Any) -> None:
        # queue, token, delivery, deadline, kind, ref, other fields if any: read when they are asked for
        self.parts = parts
        self._body = body
        self._origin = origin
        self._subscription = subscription
        #: Whether it was acknowledged, cancelled or expired through this object.
        self.settled = False

    @property
    def raw(self) -> bytes:
        """The body as it was published; for an entry that somebody wrote without ampsq, its fields as JSON."""
        if self.parts[4] != b"f":
            return self._body
        others = self._others
        fields = {
            name.decode(errors="replace"): value.decode(errors="surrogateescape")
            for name, value in zip(others[::2], others[1::2], strict=True)
        }
        # Bytes that are no text are written \udc80 to \udcff: JSON that can be turned back into them.
        return _JSON.encode(fields).encode(errors="backslashreplace")

    @property
    def _others(self) -> Sequence[bytes]:
        return own_fields(_pairs(self.parts[6])) if len(self.parts) > 6 else ()  # noqa: PLR2004

    @property
    def delivery(self) -> int:
        """1 the first time, 2 when it came back once, and so on; 0 of a barrier."""
        return int(self.parts[2])

    @property
    def is_barrier(self) -> bool:
        """Whether it is a barrier: everything before it is settled, and every subscription gets it, without a lease."""
        return self.parts[2] == b"0"

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.parts[0].decode()

    @property
    def data(self) -> Any:
        """The body decoded by its message type, or the bytes as they are when they are not of it.

        What JSON or MessagePack says; of nvfix and fix a dict, name -> text, or the list of texts of a name that is
        there more than once; of binary the bytes.
        """
        return decoded(self.raw, _type_of(self.parts))

    @property
    def message_type(self) -> str:
        """The type of the body, as in ``msgpack``; of an entry that somebody wrote without ampsq, ``json``."""
        return _type_of(self.parts).name

    @property
    def topic(self) -> str:
        """The topic that it was published to."""
        return parse_ref(self.parts[5].decode())[0]

    @property
    def origin(self) -> str:
        """The instance that delivered it, and its incarnation."""
        return self._origin

    @property
    def bookmark(self) -> Bookmark:
        """Its public identity, the same on every instance, for ever."""
        topic, stream_id = parse_ref(self.parts[5].decode())
        source = source_in(_pairs(self.parts[6])) if len(self.parts) > 6 else ""  # noqa: PLR2004
        return bookmark_of(topic, self._origin, stream_id, source)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that it was published with; empty when there were none."""
        others = self._others if self.parts[4] != b"f" else ()
        headers = dict(zip(others[::2], others[1::2], strict=True)).get(b"h")
        return json.loads(headers) if headers else {}

    @property
    def lease_until(self) -> datetime | None:
        """When the lease lapses, by the server's clock; None when it never does."""
        milliseconds = int(self.parts[3])
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bookmark} of {self.queue}, delivery {self.delivery}>"


class Message(MessageView):
    """A message delivered to a `Subscription`."""

    __slots__ = ()

    _subscription: Subscription

    def ack(self, *, wait: bool = False) -> None:
        """Say that it was processed.

        Args:
            wait: False (default) adds it to the next batch, which travels with the next `take` or after the
                subscription's `ack_timeout`; a late one is logged and kept in `Subscription.late`. True sends
                it at once and waits for the answer.

        Raises:
            StaleLease: `wait`, and the lease ended before; somebody else may have it.
            AlreadyAcked: `wait`, and it was settled before.
        """
        self._subscription.acknowledge(self, wait=wait)
        self.settled = True

    def cancel(self, delay: timedelta | float | str | None = None, *, reason: str | None = None) -> None:
        """Hand it back: it is ready again, at its old place.

        Args:
            delay: after how long; 0: at once. Default: as the queue's `redelivery_delay` says, at once if it has none.
            reason: why, one line of at most 500 characters, for whoever looks at the message, and in its dead letter.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
            DefinitionError: the reason is no line, or too long.
        """
        self._subscription.settle(self, "cancelled", Interval.parse(delay) if delay is not None else None, reason)
        self.settled = True

    def expire(self, *, reason: str | None = None) -> None:
        """Remove it unprocessed, with the reason ``forced_expire``; dead-letter actions see it.

        Args:
            reason: why, in the consumer's words; see `cancel`.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
            DefinitionError: the reason is no line, or too long.
        """
        self._subscription.settle(self, "expired", None, reason)
        self.settled = True

    def extend(self, period: timedelta | float | str) -> None:
        """Hold it for `period` from now on.

        Raises:
            StaleLease: the lease ended before. AlreadyAcked: it was settled before.
        """
        self._subscription.settle(self, "extended", Interval.parse(period))


class AsyncMessage(MessageView):
    """A message delivered to an `AsyncSubscription`; every verb as in `Message`, awaited."""

    __slots__ = ()

    _subscription: AsyncSubscription

    async def ack(self, *, wait: bool = False) -> None:
        """Say that it was processed; see `Message.ack`."""
        await self._subscription.acknowledge(self, wait=wait)
        self.settled = True

    async def cancel(self, delay: timedelta | float | str | None = None, *, reason: str | None = None) -> None:
        """Hand it back; see `Message.cancel`."""
        period = Interval.parse(delay) if delay is not None else None
        await self._subscription.settle(self, "cancelled", period, reason)
        self.settled = True

    async def expire(self, *, reason: str | None = None) -> None:
        """Remove it unprocessed; see `Message.expire`."""
        await self._subscription.settle(self, "expired", None, reason)
        self.settled = True

    async def extend(self, period: timedelta | float | str) -> None:
        """Hold it for `period` from now on; see `Message.extend`."""
        await self._subscription.settle(self, "extended", Interval.parse(period))


class Bookmarks(Sequence[Bookmark]):
    """The bookmarks of many published messages, made when they are looked at: a million cost nothing until then."""

    __slots__ = ("_origin", "_runs", "_total")

    def __init__(self, origin: str) -> None:
        self._origin = origin
        # The number of the first one, its topic, and its ID as two parts; or its bookmark.
        self._runs: list[tuple[int, str, Bookmark | tuple[str, int]]] = []
        self._total = 0

    def add_run(self, topic: str, first_id: str, number: int) -> None:
        """Add `number` messages whose IDs follow each other."""
        ms, sequence = first_id.split("-")
        self._runs.append((self._total, topic, (ms, int(sequence))))
        self._total += number

    def add(self, bookmark: Bookmark) -> None:
        """Add one message; one with an empty ID is a duplicate whose first record is not found any more."""
        self._runs.append((self._total, bookmark.topic, bookmark))
        self._total += 1

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> Bookmark: ...
    @overload
    def __getitem__(self, index: slice) -> list[Bookmark]: ...
    def __getitem__(self, index: int | slice) -> Bookmark | list[Bookmark]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._total))]
        at = index + self._total if index < 0 else index
        if not 0 <= at < self._total:
            raise IndexError(index)
        low, high = 0, len(self._runs)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._runs[middle][0] <= at else (low, middle)
        start, topic, first = self._runs[low]
        if isinstance(first, Bookmark):
            return first
        return Bookmark.of(topic, self._origin, f"{first[0]}-{first[1] + at - start}")
