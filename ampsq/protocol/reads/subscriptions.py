"""Which subscription a request has made, for who was not answered."""

from __future__ import annotations

from typing import Final

from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

__all__ = ["find_subscription"]

#: Numbers from here on have more digits; as lua/subscriptions/subscribe.lua names them.
_LONG: Final = 100_000_000


async def find_subscription(instance: str, request: str) -> str:
    """Find the subscription that a request made, among the last ones; "" where there is none."""
    registered = await command(["HGET", key(instance, "instance"), FIELDS["registered"]], lambda reply: reply or b"")
    for number in registered.split():
        name = f"s{int(number):08d}" if int(number) < _LONG else f"s{int(number):012d}"
        if (
            await command(["HGET", key(instance, "subscription", name), FIELDS["client"]], lambda reply: reply)
            == request.encode()
        ):
            return name
    return ""
