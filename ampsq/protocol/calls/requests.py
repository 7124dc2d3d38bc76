"""Requests between instances about a queue: room that one has, messages that an owner offers, and those claimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.calls.ownership import Offer, RoomRequest
from ampsq.protocol.reads.streams import Stream
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.entries import RawEntry

__all__ = ["REQUESTS", "InstanceRequest", "read_requests", "relay"]

#: The stream of all that this instance says, and passes on.
REQUESTS: Final = Stream("requests")
_SOURCE, _PATH, _QUEUE, _OWNER, _ROOMS, _FOLLOWED, _BOOKMARKS = (
    FIELDS[name].encode() for name in ("source", "path", "queues", "owner", "rooms", "heard", "bookmarks")
)
_SHARES, _WISHES, _PLACE, _TO, _OFFERED = (
    FIELDS[name].encode() for name in ("shares", "wishes", "place", "to", "offered")
)


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """One thing that an instance said.

    Attributes:
        id: of the entry here.
        source: ``<origin>~<id>`` of who said it; empty: it was said here.
        path: the instances that it passed, the last one in front.
        fields: all else, as others take it.
    """

    id: str
    source: bytes
    path: str
    fields: Mapping[bytes, bytes]

    @property
    def queue(self) -> str:
        """The queue that it is about."""
        return self.fields[_QUEUE].decode()

    @property
    def by(self) -> str:
        """The origin that says it."""
        return self.fields[_OWNER].decode()

    @property
    def bookmarks(self) -> list[bytes]:
        """The messages that it names."""
        return self.fields[_BOOKMARKS].split()

    @property
    def rooms(self) -> bytes:
        """Owners, and for how many of the messages of each there is room; one that does not say it asks for none."""
        return self.fields.get(_ROOMS, b"")

    @property
    def followed(self) -> bytes:
        """Up to where whoever says it has the journals of others."""
        return self.fields.get(_FOLLOWED, b"")

    @property
    def offer(self) -> Offer | None:
        """The messages that an owner offers; None: it is no offer."""
        if _TO not in self.fields:
            return None
        place = self.fields.get(_PLACE, b"")
        return Offer(self.fields[_TO], self.by, self.fields[_OFFERED], place, self.bookmarks)

    @property
    def wish(self) -> RoomRequest | None:
        """The room that is asked for; None: it does not ask for anything."""
        if _WISHES not in self.fields:
            return None
        place = self.fields.get(_PLACE, b"")
        return RoomRequest(self.fields[_SHARES], self.followed, place, self.fields[_WISHES])

    def replaces(self, other: InstanceRequest) -> bool:
        """True where this request replaces an earlier one."""
        both_ask = _WISHES in self.fields and _WISHES in other.fields
        return both_ask and (self.queue, self.by) == (other.queue, other.by)


def read_requests(instance: str, after: str, count: int) -> Call[list[InstanceRequest]]:
    """Read what was said behind an ID."""

    def read(reply: Sequence[RawEntry]) -> list[InstanceRequest]:
        return [_request(stream_id, flat) for stream_id, flat in reply]

    return command(["XRANGE", REQUESTS.key(instance), f"({after}", "+", "COUNT", count], read)


def _request(stream_id: bytes, flat: Sequence[bytes]) -> InstanceRequest:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return InstanceRequest(stream_id.decode(), fields.pop(_SOURCE, b""), fields.pop(_PATH, b"").decode(), fields)


def relay(source: bytes, path: str, fields: Mapping[bytes, bytes]) -> Call[int]:
    """Pass on what an instance said; gives how many were new.

    Args:
        source: ``<origin>~<id>`` of who said it.
        path: the instances that it passed, the last one in front.
        fields: as `InstanceRequest.fields` has them.
    """
    row: list[EncodableT] = [source, path, len(fields)]
    for pair in fields.items():
        row += pair
    return script_call("relay_requests", row, int, repeatable=True)
