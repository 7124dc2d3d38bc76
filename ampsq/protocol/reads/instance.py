"""Single facts of an instance: whether it is there, its catalog, whether a coordinator listens.

Who it is and was: `ampsq.protocol.reads.origin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.message_types import EXPRESSION_LIMIT
from ampsq.protocol.keepalive import wake_channel
from ampsq.protocol.reads.origin import parse_origin
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, FORMAT, FORMAT_OF_GROUPS, key, slot_key

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Origin
    from ampsq.protocol.request import Call

__all__ = [
    "InstanceState",
    "catalog_version",
    "expression_limit",
    "instance_state",
    "is_attended",
    "is_opened",
    "is_slot_key_taken",
    "slot_key",
    "version_and_origin",
]

_FORMATS: Final = (str(FORMAT).encode(), str(FORMAT_OF_GROUPS).encode())


def is_opened(instance: str) -> Call[bool]:
    """Ask whether somebody has opened an instance of this name, in whatever format its keys are."""
    return command(["HGET", key(instance, "instance"), FIELDS["format"]], bool)


def is_slot_key_taken(instance: str) -> Call[bool]:
    """Ask whether there is a key of the bare name that scripts declare, ``{instance}``."""
    return command(["EXISTS", slot_key(instance)], bool)


def catalog_version(instance: str) -> Call[int | None]:
    """Read the version of what is defined; it is another one after every change. None: there is no such instance."""
    return command(
        ["HGET", key(instance, "instance"), FIELDS["catalog"]], lambda reply: None if reply is None else int(reply)
    )


def version_and_origin(instance: str) -> Call[tuple[int | None, str]]:
    """Read the version of what is defined, and who the instance is; None and "" where there is none."""

    def read(reply: list[bytes | None]) -> tuple[int | None, str]:
        return None if reply[0] is None else int(reply[0]), (reply[1] or b"").decode()

    return command(["HMGET", key(instance, "instance"), FIELDS["catalog"], FIELDS["origin"]], read)


def is_attended(instance: str) -> Call[bool]:
    """Ask whether a coordinator is at work: it listens to what scripts wake it by."""
    return command(["PUBSUB", "SHARDNUMSUB", wake_channel(instance)], lambda reply: bool(reply and reply[1]))


class InstanceState(NamedTuple):
    """The state of an instance, as a client that opens it has to know.

    Attributes:
        has_format: whether it is there, and its keys have this version's format.
        origin: who it is, and who it was.
        has_listeners: whether an action asks for the comings and goings of clients.
        partitions: how many partitions it has, which hold what it has; 0: none, it is one instance.
        partition: which partition of another instance it is, as it is stored; "": none.
    """

    has_format: bool
    origin: Origin
    has_listeners: bool
    partitions: int = 0
    partition: str = ""


def instance_state(instance: str) -> Call[InstanceState]:
    """Read what a client that opens an instance has to know of it."""
    names = [FIELDS[name] for name in ("format", "heard", "partitions", "partition", "origin", "former")]

    def read(reply: list[bytes | None]) -> InstanceState:
        stored, listened, partitions, partition, *origin = reply
        count = int(partitions.split()[0]) if partitions else 0
        return InstanceState(
            stored in _FORMATS, parse_origin(origin), bool(listened), count, (partition or b"").decode()
        )

    return command(["HMGET", key(instance, "instance"), *names], read)


def expression_limit(instance: str) -> Call[int]:
    """Read the `expression_limit` of topics that give none."""
    return command(
        ["HGET", key(instance, "instance"), FIELDS["expression_limit"]],
        lambda reply: int(reply) if reply else EXPRESSION_LIMIT,
    )
