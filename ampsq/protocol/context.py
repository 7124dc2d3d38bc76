"""The instance that messages are read from, as far as reading them needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ampsq.base.bookmarks import parse_ref
from ampsq.base.message_types import JSON
from ampsq.expressions import Document
from ampsq.protocol.entries import body_in, bookmark_of

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.browse import Browsed

__all__ = ["ClientContext", "InstanceContext"]


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """The location of messages: the instance's name, and its origin."""

    instance: str
    origin: str

    def bookmark(self, found: Browsed) -> Bookmark:
        """The bookmark of a message that a walk or a look gave."""
        topic, stream_id = parse_ref(found.ref.decode())
        return bookmark_of(topic, self.origin, stream_id, found.source)

    def document(self, found: Browsed, message_type: MessageType = JSON) -> Document:
        """Return the document, for expressions, of a message of that type which a walk or a look gave."""
        topic, stream_id = parse_ref(found.ref.decode())
        return Document(
            body_in(found.fields),
            fields=found.fields,
            topic=topic,
            stream_id=stream_id,
            origin=self.origin,
            source=found.source,
            instance=self.instance,
            deliveries=found.deliveries,
            message_type=message_type,
        )


class ClientContext(Protocol):
    """A client at one instance, as far as its subscriptions need it.

    Attributes:
        instance: the instance's name.
        origin: whence the messages of the instance come: its name and its incarnation.
        client: the client's own name.
        instances: the names of all instances where the client may work.
    """

    instance: str
    origin: str
    client: str
    instances: tuple[str, ...]

    def request(self) -> str:
        """Give a name for one request that may be repeated."""
