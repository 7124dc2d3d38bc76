"""A new incarnation of an instance: what it has recorded so far is from then on what an earlier one had."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.flow import command, script_call
from ampsq.origins import next_incarnation

if TYPE_CHECKING:
    from ampsq.flow import Call, Flow

__all__ = ["Begun", "end_connections", "new_incarnation"]


class Begun(NamedTuple):
    """What beginning a new incarnation came to: its origin, and the queues that have to be rebuilt."""

    origin: str
    queues: list[str]


def new_incarnation() -> Call[Begun]:
    """Say that what was recorded so far is of the last incarnation; the queues read nothing until they are rebuilt.

    A coordinator does that, or whoever called this.
    """
    return script_call("begin_incarnation", ["", next_incarnation()], _read, repeatable=True)


def end_connections() -> Flow[None]:
    """End all connections to the server but this one, so that every client asks anew whom it works on."""
    for kind in ("normal", "pubsub"):
        yield command(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"], int)


def _read(reply: list[bytes]) -> Begun:
    origin, *queues = (text.decode() for text in reply)
    return Begun(origin, queues)
