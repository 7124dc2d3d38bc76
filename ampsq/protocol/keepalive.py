"""The commands that show a server which clients live: a connection stays subscribed to a channel of each client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.protocol.schema import WAKE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "HEARTBEAT",
    "LONGEST_HEARTBEAT",
    "OVERDUE",
    "RETURN_WITHIN",
    "SESSION_TIMEOUT",
    "attach",
    "count_coordinators",
    "detach",
    "keepalive_channel",
    "wake_channel",
]

#: Milliseconds between two signs of life of a client, at most.
LONGEST_HEARTBEAT: Final = 10_000
#: Milliseconds without a sign of life after which a subscription ends: two may be lost, and the third may come late.
SESSION_TIMEOUT: Final = 35_000
#: Seconds that clients have to come back after their server started anew: one that sends nothing else learns of it by
#: its next sign of life, and then connects.
RETURN_WITHIN: Final = 12.0

#: Milliseconds by which what is due may be late where a coordinator is at work.
OVERDUE: Final = 2_000

#: Asks whether the server is there, on a connection that is subscribed.
HEARTBEAT: Final = ("PING",)


def keepalive_channel(instance: str, client: str) -> str:
    """The pub/sub channel to which a client stays subscribed, so that its absence is seen."""
    return "{" + instance + "}:client:" + client


def wake_channel(instance: str) -> str:
    """The sharded pub/sub channel by which scripts wake the coordinators of an instance."""
    return "{" + instance + "}" + WAKE


def attach(instance: str, client: str) -> tuple[tuple[str, str], ...]:
    """Say that a client is there, for as long as the connection stands."""
    channel = keepalive_channel(instance, client)
    # The plain one is what coordinators of the version before count.
    return ("SUBSCRIBE", channel), ("SSUBSCRIBE", channel)


def detach(instance: str, client: str) -> tuple[tuple[str, str], ...]:
    """Say that a client is there no more."""
    channel = keepalive_channel(instance, client)
    return ("UNSUBSCRIBE", channel), ("SUNSUBSCRIBE", channel)


def count_coordinators(channels: Iterable[str]) -> tuple[str, ...]:
    """Ask how many listen on each `wake_channel`: a coordinator at work does."""
    return ("PUBSUB", "SHARDNUMSUB", *channels)
