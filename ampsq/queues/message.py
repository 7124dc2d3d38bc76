"""A delivered message: the two strings of lua/leases/lib/delivery_element.lua, settled through its subscription."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.base.values import Interval
from ampsq.protocol.encoding import JSON_TEXT, decode_body, delivered_type, read_pairs
from ampsq.protocol.entries import bookmark_of, own_fields, source_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from ampsq.protocol.calls.queues import Verb

__all__ = ["AsyncLeaseSettler", "AsyncMessage", "LeaseSettler", "Message", "MessageView"]


class LeaseSettler(Protocol):
    """A subscription, as far as its messages need it."""

    def acknowledge(self, message: Message, *, wait: bool) -> None:
        """See `Message.ack`."""

    def settle(self, message: Message, verb: Verb, period: int | None, reason: str | None = None) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""


class AsyncLeaseSettler(Protocol):
    """The same of the asyncio client."""

    async def acknowledge(self, message: AsyncMessage, *, wait: bool) -> None:
        """See `Message.ack`."""

    async def settle(self, message: AsyncMessage, verb: Verb, period: int | None, reason: str | None = None) -> None:
        """See `Message.cancel`, `Message.expire` and `Message.extend`."""


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
        return JSON_TEXT.encode(fields).encode(errors="backslashreplace")

    @property
    def _others(self) -> Sequence[bytes]:
        return own_fields(read_pairs(self.parts[6])) if len(self.parts) > 6 else ()  # noqa: PLR2004

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
        return decode_body(self.raw, delivered_type(self.parts))

    @property
    def message_type(self) -> str:
        """The type of the body, as in ``msgpack``; of an entry that somebody wrote without ampsq, ``json``."""
        return delivered_type(self.parts).name

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
        source = source_in(read_pairs(self.parts[6])) if len(self.parts) > 6 else ""  # noqa: PLR2004
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

    _subscription: LeaseSettler

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

    _subscription: AsyncLeaseSettler

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
