"""Topics and queues that a destination is sent, by definitions as models or as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.catalog import Catalog

__all__ = ["AnyDestination", "AnyQueue", "sent_queue", "sent_topic"]

_Topic_co = TypeVar("_Topic_co", covariant=True)


class AnyDestination(Protocol[_Topic_co]):
    """A destination, as its model or as it is stored."""

    def topic_for(self, name: str, type: MessageType) -> _Topic_co | None:  # noqa: A002
        """Return the element of its `topics` that counts for a topic or a queue; None: it is not sent."""


class AnyQueue(Protocol):
    """A queue, as its model or as it is stored."""

    @property
    def name(self) -> str:
        """Name of the queue."""

    @property
    def owner(self) -> str:
        """First owner of its messages."""

    @property
    def type(self) -> MessageType:
        """Message type with its separator."""


def sent_topic(destination: AnyDestination[_Topic_co], catalog: Catalog, name: str) -> _Topic_co | None:
    """Return the element of a destination's `topics` by which a topic's messages are sent; None: they are not.

    What a view keeps is not: every instance makes that for itself.
    """
    return None if name in catalog.views else destination.topic_for(name, catalog.message_type(name))


def sent_queue(destination: AnyDestination[_Topic_co], queue: AnyQueue) -> _Topic_co | None:
    """Return the element of a destination's `topics` by which a queue's journal is sent; None: it is not.

    Of a local queue it is not: there each instance delivers its own copies.
    """
    return destination.topic_for(queue.name, queue.type) if queue.owner else None
