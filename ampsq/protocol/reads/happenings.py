"""Entries of the streams that only actions follow: who came, went and subscribed, and what matched for its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ampsq.protocol.schema import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Happening", "OverdueMatch"]

_WHAT, _CLIENT, _TOPIC, _DATA, _OPTIONS, _TREE, _QUEUES, _SINCE, _KEY, _ID = (
    FIELDS[name].encode()
    for name in ("what", "client", "topic", "data", "options", "tree", "queues", "since", "key", "id")
)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened at an instance.

    Attributes:
        what: the word of the trigger that follows it.
        client: whose it is; empty where it is nobody's.
        topic: what was subscribed to, the event that was raised, or the destination of a link.
        data: of an event, as it was raised; of a link, what that said of itself; of a client, why it went.
        options: of a subscription.
        tree: of a subscription's filter, JSON; empty for none.
        queues: those of a subscription.
    """

    what: str
    client: bytes
    topic: bytes
    data: bytes
    options: bytes
    tree: bytes
    queues: tuple[str, ...]

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Read the fields of an entry."""
        client, topic, data, options, tree = (
            fields.get(name, b"") for name in (_CLIENT, _TOPIC, _DATA, _OPTIONS, _TREE)
        )
        queues = tuple(fields.get(_QUEUES, b"").decode().split())
        return cls(fields[_WHAT].decode(), client, topic, data, options, tree, queues)


@dataclass(frozen=True, slots=True)
class OverdueMatch:
    """A message that has matched an action's condition for its time.

    Attributes:
        topic: its topic.
        since: ms since when it matched.
        key: what it has in common with other messages of its kind, JSON.
        id: of its entry in the topic's log.
    """

    topic: str
    since: str
    key: bytes
    id: str

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Read the fields of an entry; the message's own are among them."""
        return cls(fields[_TOPIC].decode(), fields[_SINCE].decode(), fields[_KEY], fields[_ID].decode())
