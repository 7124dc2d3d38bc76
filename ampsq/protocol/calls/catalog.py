"""The calls that open an instance and read all that is defined there."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ampsq.base.message_types import EXPRESSION_LIMIT, MessageType
from ampsq.protocol.replies import texts
from ampsq.protocol.request import Call, script_call

__all__ = [
    "Catalog",
    "KnownCatalog",
    "OpenReply",
    "catalog",
    "open_instance",
]


@dataclass(frozen=True, slots=True)
class OpenReply:
    """An instance ready for use: its origin (name and incarnation) and the server's time, ms."""

    origin: str
    now: int


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that is defined: names to definitions (JSON), subscriptions to their patterns.

    Attributes:
        settings: the match of each address setting -> its definition, behind ``>`` while queues are compiled by it.
        instance: the instance's name.
        group: its group; where it was not given one, its name.
        label: what people call it; empty where nobody said so.
        expression_limit: bytes of the largest body that expressions read, of topics that do not say it.
        defined_only: a first publish makes no topic.
    """

    version: int
    topics: dict[str, str]
    queues: dict[str, str]
    actions: dict[str, str]
    patterns: dict[str, str]
    views: dict[str, str]
    settings: dict[str, str]
    transports: dict[str, str]
    destinations: dict[str, str]
    conflated: dict[str, str]
    instance: str
    group: str
    label: str = ""
    expression_limit: int = EXPRESSION_LIMIT
    defined_only: bool = False

    def message_type(self, name: str) -> MessageType:
        """The message type of a topic or a queue, with its limit of bodies; JSON of what is not defined."""
        if name in self.topics or name not in self.queues:
            return MessageType.of_definition(self.topics.get(name), self.expression_limit)
        under = json.loads(self.queues[name]).get("underlying_topic", name)
        limit = MessageType.of_definition(self.topics.get(under), self.expression_limit).expression_limit
        return MessageType.of_definition(self.queues[name], limit)


_CatalogReply = tuple[int, *tuple[list[bytes], ...], bytes, bytes, bytes, int, int]


def open_instance(name: str, incarnation: str) -> Call[OpenReply]:
    """Make an instance ready for use; `incarnation` names it if it is new."""
    return script_call(
        "open",
        ["", name, incarnation],
        lambda reply: OpenReply(reply[0].decode(), int(reply[2])),
        repeatable=True,
    )


def catalog(known: Catalog | None = None) -> Call[Catalog]:
    """Read everything that is defined; `known` comes back, without being sent again, where nothing changed since."""

    def read(reply: _CatalogReply) -> Catalog:
        return known if known is not None and len(reply) == 1 else _read_catalog(reply)

    return script_call("read_catalog", [known.version if known is not None else ""], read, repeatable=True)


class KnownCatalog:
    """A client's copy of the catalog of one instance. The server sends the catalog again only where it has changed.

    A client that changes the catalog updates its copy by itself: defining 1,000 queues one by one reads it once.

    Attributes:
        last: as it was when it was last read or changed from here; None: it was not.
    """

    def __init__(self) -> None:
        self.last: Catalog | None = None

    async def read(self) -> Catalog:
        """Return everything that is defined now."""
        self.last = found = await catalog(self.last)
        return found


def _read_catalog(reply: _CatalogReply) -> Catalog:
    kinds = "topics", "queues", "actions", "patterns", "views", "settings", "transports", "destinations", "conflated"
    parts = dict(zip(kinds, map(texts, reply[1:-5]), strict=True))
    name, group, label = (text.decode() for text in reply[-5:-2])
    return Catalog(
        int(reply[0]),
        **parts,
        instance=name,
        group=group,
        label=label,
        expression_limit=int(reply[-2]),
        defined_only=bool(reply[-1]),
    )
