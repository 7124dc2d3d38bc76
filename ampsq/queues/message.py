"""A delivered message: the two strings of lua/leases/lib/delivery_element.lua, settled through its subscription."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ampsq.base.bookmarks import Bookmark, parse_ref
from ampsq.protocol.encoding import (
    JSON_TEXT,
    batch_of,
    decode_body,
    delivered_type,
    group_begins,
    group_of,
    read_headers,
    read_pairs,
    without_group,
)
from ampsq.protocol.entries import bookmark_of, own_fields, source_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.queues.lease_table import LeaseTable

__all__ = ["MessageView", "delivered_bookmark", "head_of", "lane_of", "may_begin"]


def delivered_bookmark(parts: Sequence[bytes], origin: str) -> Bookmark:
    """Return the bookmark of a message that an instance delivered, by the parts of its head."""
    topic, stream_id = parse_ref(parts[5].decode())
    source = source_in(read_pairs(parts[6])) if len(parts) > 6 else ""  # noqa: PLR2004
    return bookmark_of(topic, origin, stream_id, source)


class MessageView:
    """A message and its delivery. `Message` and `AsyncMessage` are made, and settle it.

    Attributes:
        settled: whether it was acknowledged, cancelled or expired through this object.
    """

    __slots__ = ("_body", "_leases", "_parts", "settled")

    # Queue, token, delivery, deadline, kind, ref, other fields if any: read when they are asked for.
    _parts: list[bytes]
    _body: bytes
    settled: bool
    # Where it is held, at the instance that delivered it.
    _leases: LeaseTable

    @property
    def raw(self) -> bytes:
        """The body as it was published; for an entry that somebody wrote without ampsq, its fields as JSON."""
        if self._parts[4] != b"f":
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
        if len(self._parts) <= 6:  # noqa: PLR2004
            return ()
        return without_group(own_fields(read_pairs(self._parts[6])))

    @property
    def group(self) -> str | None:
        """Name of the group, of a queue that has groups (docs/groups.md); None of a message that is in none."""
        return group_of(self._parts)

    @property
    def group_begins(self) -> bool:
        """Return whether its group comes to this subscription now, of a queue with `group_affinity`.

        True of the first message of the group since it was bound to this subscription, and to no other one meanwhile:
        what is kept of a group from message to message begins anew here. False of a message in no group, and in a queue
        without affinity.
        """
        return group_begins(self._parts)

    @property
    def delivery(self) -> int:
        """1 the first time, 2 when it came back once, and so on; 0 of a barrier."""
        return int(self._parts[2])

    @property
    def is_barrier(self) -> bool:
        """Return whether it is a barrier: when all before it is settled, all subscriptions get it, without a lease."""
        return self._parts[2] == b"0"

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._parts[0].decode()

    @property
    def data(self) -> Any:
        """The body decoded by its message type, or the bytes as they are when they are not of it.

        What JSON or MessagePack says; of nvfix and fix a dict, name -> text, or the list of texts of a name that is
        there more than once; of binary the bytes.
        """
        return decode_body(self.raw, delivered_type(self._parts))

    @property
    def message_type(self) -> str:
        """The type of the body, as in ``msgpack``; of an entry that somebody wrote without ampsq, ``json``."""
        return delivered_type(self._parts).name

    @property
    def topic(self) -> str:
        """The topic that it was published to."""
        return parse_ref(self._parts[5].decode())[0]

    @property
    def origin(self) -> str:
        """The instance that delivered it, and its incarnation."""
        return self._leases.origin

    @property
    def bookmark(self) -> Bookmark:
        """Public identity of the message, the same on every instance, for ever."""
        return delivered_bookmark(self._parts, self._leases.origin)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that it was published with; empty when there were none.

        What another program wrote there and is no JSON object of texts stands under ``(unreadable)``.
        """
        others = self._others if self._parts[4] != b"f" else ()
        headers = dict(zip(others[::2], others[1::2], strict=True)).get(b"h")
        return read_headers(headers or b"")

    @property
    def lease_until(self) -> datetime | None:
        """Time when the lease lapses, by the server's clock; None when it never does."""
        milliseconds = int(self._parts[3])
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bookmark} of {self.queue}, delivery {self.delivery}>"


def lane_of(message: MessageView) -> tuple[str, str] | None:
    """Return in which lane a message of a batch is handled, one after the other: its queue and group; None: in any."""
    parts = message._parts  # noqa: SLF001  (a friend of the class)
    return None if batch_of(parts) is None else (message.queue, message.group or "")


def may_begin(message: MessageView) -> bool:
    """Return whether a message is held as far as is known, if it came in a batch; else it is given up."""
    return message._leases.may_begin(message._parts)  # noqa: SLF001  (a friend of the class)


def head_of(message: MessageView) -> list[bytes]:
    """Return the parts of a message's head, as they were delivered."""
    return message._parts  # noqa: SLF001  (a friend of the class)
