"""Stored definitions of destinations, read without their models; see `ampsq.definitions.stored`."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.name_patterns import matches_name
from ampsq.base.values import Interval

if TYPE_CHECKING:
    from ampsq.base.message_types import MessageType

__all__ = ["StoredDestination", "StoredReplicatedTopic", "read_stored_destination"]

#: Stored texts that are kept as they were read.
_KEPT: Final = 4_096
_TEN_SECONDS: Final = "10s"


class StoredReplicatedTopic(NamedTuple):
    """A topic or queue, or a pattern of them, whose messages a destination is sent; see `ReplicatedTopic`."""

    name: str
    message_type: str | None

    def matches(self, name: str, type: MessageType) -> bool:  # noqa: A002
        """Say whether a topic or queue of this name and type is meant."""
        return self.message_type in (None, type.name) and matches_name(self.name, name)


class StoredDestination(NamedTuple):
    """A destination as it is stored: those elements of `Destination` that are read without the model.

    Attributes:
        peers: URL, with its passwords, and instance of each address, in the order in which they are tried.
    """

    name: str
    group: str | None
    sync_type: str
    topics: tuple[StoredReplicatedTopic, ...]
    peers: tuple[tuple[str, str], ...]
    reconnect_timeout: Interval
    pass_through: tuple[str, ...]

    def topic_for(self, name: str, type: MessageType) -> StoredReplicatedTopic | None:  # noqa: A002
        """Return the element of `topics` that counts for a topic or a queue; None: it is not sent."""
        return next((topic for topic in self.topics if topic.matches(name, type)), None)

    def leads_to(self, instance: str, group: str) -> bool:
        """Say whether the link may be one to this instance, of this group."""
        if self.peers:
            return any(instance == name for _, name in self.peers)
        return instance == self.name or (self.group is not None and group == self.group)


@lru_cache(maxsize=_KEPT)
def read_stored_destination(text: str | bytes) -> StoredDestination:
    """Read what `Destination.to_json` wrote."""
    elements = json.loads(text)
    name = elements["name"]
    addresses = [address.partition("#") for address in elements.get("addresses", ())]
    return StoredDestination(
        name,
        elements.get("group"),
        elements["sync_type"],
        tuple(StoredReplicatedTopic(topic["name"], topic.get("message_type")) for topic in elements["topics"]),
        tuple((url, instance or name) for url, _, instance in addresses),
        Interval.parse(elements.get("reconnect_timeout", _TEN_SECONDS)),
        tuple(elements.get("pass_through", ())),
    )
