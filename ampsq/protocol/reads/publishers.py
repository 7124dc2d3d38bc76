"""Publishers that have a name, and the sessions of those that are logged on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.replies import texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "LastMessage",
    "PublisherSession",
    "read_last_messages",
    "read_last_sequence",
    "read_publish_targets",
    "read_sessions",
]


class LastMessage(NamedTuple):
    """The last message of a publisher.

    Attributes:
        sequence: its number.
        id: of its entry; of a publisher that has recorded nothing when it logged on, as an ID.
        topic: its topic; "" of a publisher that has recorded nothing.
    """

    sequence: int
    id: str
    topic: str


class PublisherSession(NamedTuple):
    """A publisher that is logged on.

    Attributes:
        number: of its session.
        seen: when it showed last that it publishes, ms.
        client: its client's name.
    """

    number: int
    seen: int
    client: str


def read_last_sequence(instance: str, publisher: str) -> Call[int]:
    """Read the last number of a publisher that is recorded; 0 for none."""
    return command(
        ["HGET", key(instance, "publishers"), publisher], lambda reply: int(reply.split(b" ")[0]) if reply else 0
    )


def read_last_messages(instance: str) -> Call[dict[str, LastMessage]]:
    """Read the last message of each publisher."""
    return command(["HGETALL", key(instance, "publishers")], _last_messages)


def _last_messages(reply: RawHash) -> dict[str, LastMessage]:
    found = {}
    for name, value in texts(reply).items():
        sequence, stream_id, topic = value.split(" ", 2)
        found[name] = LastMessage(int(sequence), stream_id, topic)
    return found


def read_sessions(instance: str) -> Call[dict[str, PublisherSession]]:
    """Read the sessions of the publishers that are logged on."""
    return command(["HGETALL", key(instance, "sessions")], _sessions)


def _sessions(reply: RawHash) -> dict[str, PublisherSession]:
    found = {}
    for name, value in texts(reply).items():
        number, seen, client = value.split(" ", 2)
        found[name] = PublisherSession(int(number), int(seen), client)
    return found


def read_publish_targets(instance: str, names: Sequence[str]) -> Call[list[str]]:
    """Read where a publish to each of some topics and queues goes: a topic is its own target."""

    def read(reply: list[bytes | None]) -> list[str]:
        found = zip(names, reply, strict=True)
        return [route[1:].decode() if route and route.startswith(b">") else name for name, route in found]

    return command(["HMGET", key(instance, "routes"), *names], read)
