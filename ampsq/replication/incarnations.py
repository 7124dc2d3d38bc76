"""A new incarnation of an instance: what it has recorded so far is from then on what an earlier one had."""

from __future__ import annotations

from typing import Any

from ampsq.protocol.reads.origin import next_incarnation
from ampsq.protocol.request import command, script_call

__all__ = ["end_connections", "new_incarnation"]


async def new_incarnation() -> str:
    """Say that what was recorded so far is of the last incarnation, whose leases are void; gives the new origin.

    Queues that several instances have are held until that has recovered; see `ampsq.replication.recovery`.
    """
    word, left = next_incarnation(), True
    while left:
        origin, left = await script_call("begin_incarnation", ["", word], _read, repeatable=True)
    return str(origin)


async def end_connections() -> None:
    """End all connections to the server but this one, so that every client asks anew whom it works on."""
    for kind in ("normal", "pubsub"):
        await command(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"], int)


def _read(reply: Any) -> tuple[str, bool]:
    return reply[0].decode(), bool(reply[1])
