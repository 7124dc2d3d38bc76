"""Definitions, read one by one; `ampsq.protocol.calls.catalog.catalog` reads all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ampsq.protocol.replies import names, plain, texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from ampsq.definitions.queue import Queue, Topic, View
    from ampsq.protocol.request import Call

__all__ = [
    "DefinitionKind",
    "definition_names",
    "read_definition",
    "read_definitions",
    "read_queue",
    "read_topic",
    "read_view",
]

#: Kinds of definitions, as a `Catalog` names them.
DefinitionKind: TypeAlias = Literal[
    "topics", "queues", "settings", "transports", "conflated", "destinations", "actions", "views"
]


def read_definition(instance: str, kind: DefinitionKind, name: str) -> Call[bytes | None]:
    """Read one definition, JSON; None where nothing of this kind has the name."""
    return command(["HGET", key(instance, kind), name], plain)


def read_definitions(instance: str, kind: DefinitionKind) -> Call[dict[str, str]]:
    """Read all definitions of a kind, JSON, by name."""
    return command(["HGETALL", key(instance, kind)], texts)


def definition_names(instance: str, kind: DefinitionKind) -> Call[list[str]]:
    """Read the names of all that is defined of a kind."""
    return command(["HKEYS", key(instance, kind)], names)


def read_queue(instance: str, name: str) -> Call[Queue | None]:
    """Read a queue's definition; None: there is no such queue."""
    # Names are completed in shells without the models, which take long to import.
    from ampsq.definitions.queue import Queue  # noqa: PLC0415  (they take long)

    return command(["HGET", key(instance, "queues"), name], lambda reply: Queue.from_json(reply) if reply else None)


def read_view(instance: str, name: str) -> Call[View | None]:
    """Read a view's definition; None: there is no such view."""
    from ampsq.definitions.queue import View  # noqa: PLC0415  (they take long)

    return command(["HGET", key(instance, "views"), name], lambda reply: View.from_json(reply) if reply else None)


def read_topic(instance: str, name: str) -> Call[Topic | None]:
    """Read a topic's definition; None: there is no such topic."""
    from ampsq.definitions.queue import Topic  # noqa: PLC0415  (they take long)

    return command(
        ["HGET", key(instance, "topics"), name], lambda reply: Topic.stored(name, reply.decode()) if reply else None
    )
