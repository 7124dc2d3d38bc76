"""A new incarnation of an instance: what it has recorded so far is from then on what an earlier one had."""

from __future__ import annotations

from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.protocol.reads.origin import next_incarnation

__all__ = ["end_connections", "new_incarnation"]


async def new_incarnation() -> str:
    """Say that what was recorded so far is of the last incarnation, whose leases are void; gives the new origin.

    Queues that several instances have are held until that has recovered; see `ampsq.replication.recovery`.
    """
    word = next_incarnation()
    while (step := await incarnation_calls.begin_incarnation(word)).has_more:
        pass
    return step.origin


async def end_connections() -> None:
    """End all connections to the server but this one, so that every client asks anew whom it works on."""
    for kind in ("normal", "pubsub"):
        await incarnation_calls.end_connections(kind)
