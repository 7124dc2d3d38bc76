"""Subscribers of queues: which subscriptions there are, until when each counts as alive, and what each holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NotPermitted
from ampsq.protocol.keepalive import keepalive_channel
from ampsq.protocol.replies import names, pairs, text
from ampsq.protocol.request import command
from ampsq.protocol.schema import END_OF_WAIT, FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "StoredSubscription",
    "count_channel_listeners",
    "count_listeners",
    "count_members",
    "count_subscriptions",
    "has_subscription",
    "holder_reports",
    "inbox_deliveries",
    "known_clients",
    "queue_members",
    "subscription_client",
    "subscription_deadline",
    "subscription_deadlines",
    "subscription_facts",
    "subscription_names",
]

#: What counts the listeners of plain channels, and of sharded ones.
_PLAIN: Final = "NUMSUB"
_SHARDED: Final = "SHARDNUMSUB"
_END_OF_WAIT: Final = END_OF_WAIT.encode()
_FACTS: Final = ("client", "queues", "max", "leased", "tree", "bell", "asked")


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription to queues.

    Attributes:
        name: its name.
        client: whose it is, with the request that made it behind a slash.
        queues: their names.
        max_backlog: unacknowledged messages at most; of one over several partitions in all of them together.
        leased: messages that it holds.
        filter: the tree of its filter, JSON; "" for none.
    """

    name: str
    client: str
    queues: tuple[str, ...]
    max_backlog: int
    leased: int
    filter: str


def subscription_names(instance: str, most: int = 0) -> Call[list[str]]:
    """Read the names of subscriptions, those first that were alive least lately; `most`: so many, 0: all."""
    return command(["ZRANGE", key(instance, "subscriptions"), 0, most - 1], names)


def count_members(instance: str, queue: str) -> Call[int]:
    """Count the subscriptions to one queue."""
    return command(["SCARD", key(instance, "members", queue)], int)


def count_subscriptions(instance: str) -> Call[int]:
    """Count all subscriptions to queues."""
    return command(["ZCARD", key(instance, "subscriptions")], int)


def subscription_deadlines(instance: str) -> Call[dict[str, float]]:
    """Read until when, ms, each subscription counts as alive."""
    return command(
        ["ZRANGE", key(instance, "subscriptions"), 0, -1, "WITHSCORES"],
        lambda reply: {name.decode(): float(at) for name, at in pairs(reply)},
    )


def subscription_deadline(instance: str, name: str) -> Call[float]:
    """Read until when, ms, one subscription counts as alive; 0 where it is not there."""
    return command(["ZSCORE", key(instance, "subscriptions"), name], lambda reply: float(reply or 0))


def queue_members(instance: str, queue: str, most: int) -> Call[list[str]]:
    """Read the names of a queue's subscriptions, about so many of them, in no order."""

    def read(reply: tuple[bytes, list[bytes]]) -> list[str]:
        return names(reply[1])

    return command(["SSCAN", key(instance, "members", queue), 0, "COUNT", most], read)


def subscription_facts(instance: str, name: str) -> Call[StoredSubscription | None]:
    """Read what a subscription asks for and holds; None where it has ended."""

    def read(reply: Sequence[bytes | None]) -> StoredSubscription | None:
        client, queues, most, leased, tree, bell, asked = (
            (value or b"").decode(errors="backslashreplace") for value in reply
        )
        if not most:
            return None
        room = int(asked if bell else most)
        return StoredSubscription(name, client, tuple(queues.split(" ")), room, int(leased or 0), tree)

    return command(["HMGET", key(instance, "subscription", name), *(FIELDS[field] for field in _FACTS)], read)


def subscription_client(instance: str, name: str) -> Call[str]:
    """Read whose a subscription is, with the request that made it behind a slash; "" where it has ended."""
    return command(["HGET", key(instance, "subscription", name), FIELDS["client"]], text)


def has_subscription(instance: str, name: str) -> Call[bool]:
    """Ask whether a subscription is there."""
    return command(["EXISTS", key(instance, "subscription", name)], bool)


def inbox_deliveries(instance: str, name: str) -> Call[int]:
    """Count the leased messages that were pushed to a subscription, and that it has not picked up yet."""
    return command(["LRANGE", key(instance, "inbox", name), 0, -1], _count_leased)


def _count_leased(reply: Sequence[bytes]) -> int:
    # Heads and bodies in turn; a head's third word is the delivery, 0 of a barrier, which has no lease.
    return sum(head.split(b" ", 3)[2] != b"0" for head in reply[::2] if head != _END_OF_WAIT)


def holder_reports(instance: str, queue: str, most: int) -> Call[dict[str, str]]:
    """Read how far the holders of a queue's messages are, of about so many, by refs: when, ms, 0 to 1, their words."""

    def read(reply: tuple[bytes, RawHash]) -> dict[str, str]:
        found = pairs(reply[1])
        return {ref.decode(): value.decode(errors="replace").partition(" ")[2] for ref, value in found}

    return command(["HSCAN", key(instance, "progress", queue), 0, "COUNT", most], read)


def known_clients(instance: str) -> Call[list[str]]:
    """Read the clients that came while an action asks for it, and have not gone."""
    return command(["HKEYS", key(instance, "clients")], names)


async def count_listeners(instance: str, clients: Sequence[str]) -> list[int]:
    """Count for each client who listens on its keepalive channel, plain or sharded: nobody where it is gone."""
    channels = [keepalive_channel(instance, client) for client in clients]
    counts = await count_channel_listeners(channels)
    missing = [channel for channel, number in zip(channels, counts, strict=True) if not number]
    if not missing:
        return counts
    try:
        sharded = dict(zip(missing, await _count_listeners(_SHARDED, missing), strict=True))
    except NotPermitted:
        # Of a user whose rules an older release made, as are the clients that it knows.
        return counts
    return [number or sharded[channel] for channel, number in zip(channels, counts, strict=True)]


def count_channel_listeners(channels: Sequence[str]) -> Call[list[int]]:
    """Count for each keepalive channel, of whatever instance, who listens on the plain one; clients listen on both."""
    return _count_listeners(_PLAIN, channels)


def _count_listeners(kind: str, channels: Sequence[str]) -> Call[list[int]]:
    def read(reply: RawHash) -> list[int]:
        # In the order in which it was asked.
        return [int(number) for _, number in pairs(reply)]

    return command(["PUBSUB", kind, *channels], read)
