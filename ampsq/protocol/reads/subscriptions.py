"""Subscriptions to queues: which one a request has made, for who was not answered; what one has; what they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.replies import plain
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.protocol.request import Call

__all__ = ["SubscriptionLoad", "find_subscription", "most_asked", "subscription_load"]

#: Numbers from here on have more digits; as lua/subscriptions/subscribe.lua names them.
_LONG: Final = 100_000_000
#: Subscriptions of a queue that are looked at, about.
_SOME: Final = 50


@dataclass(frozen=True, slots=True)
class SubscriptionLoad:
    """A subscription as it is stored.

    Attributes:
        queues: the queues that it takes from.
        leased: how many unacknowledged messages it has.
        has_rung: its bell rang, and waits for a visit; False where it has none.
    """

    queues: list[bytes]
    leased: int
    has_rung: bool = False


def subscription_load(instance: str, subscription: str) -> Call[SubscriptionLoad]:
    """Read which queues a subscription takes from, and how much it has; nothing of one that is not there."""
    fields = [FIELDS[name] for name in ("queues", "leased", "bell")]
    return command(["HMGET", key(instance, "subscription", subscription), *fields], _read_load)


def _read_load(reply: list[bytes | None]) -> SubscriptionLoad:
    queues, leased, bell = reply
    return SubscriptionLoad((queues or b"").split(), int(leased or 0), bell == b"0")


async def find_subscription(instance: str, request: str) -> str:
    """Find the subscription that a request made, among the last ones; "" where there is none."""
    registered: bytes | None = await command(["HGET", key(instance, "instance"), FIELDS["registered"]], plain)
    for number in (registered or b"").split():
        name = f"s{int(number):08d}" if int(number) < _LONG else f"s{int(number):012d}"
        client: bytes | None = await command(["HGET", key(instance, "subscription", name), FIELDS["client"]], plain)
        if client == request.encode():
            return name
    return ""


async def most_asked(instance: str, queue: str) -> int:
    """Return the largest backlog that one of a queue's subscriptions asks for, of some of them; 0 without any."""
    members = key(instance, "members", queue)
    names: list[bytes] = await command(["SSCAN", members, 0, "COUNT", _SOME], lambda reply: list(reply[1]))
    most = 0
    for name in sorted(names)[:_SOME]:
        subscription = key(instance, "subscription", name.decode())
        asked = await command(["HGET", subscription, FIELDS["asked"]], lambda reply: int(reply or 0))
        most = max(most, asked)
    return most
