"""Requests as values, and client code as generators that yield them: what is shared by all ways of waiting.

A `Call` says what to run, whether repeating it is harmless, and how to read the reply. A `Flow` is a generator that
yields calls and is sent their results; `ampsq.store` drives it, synchronously or with asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ampsq import scripts

if TYPE_CHECKING:
    from redis.typing import EncodableT

__all__ = ["Call", "Collect", "Flow", "Pause", "Post", "Step", "command", "script_call"]

T = TypeVar("T")


@dataclass(slots=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        script: the script to run, or None for a plain command.
        arguments: what follows the key, or the whole command.
        read: turns the raw reply into what the caller wants.
        repeatable: a second run is harmless, so a lost reply is answered by asking again.
        blocks: seconds that the server may hold the answer back.
        repeated: set when it was in fact sent more than once: an earlier run may have taken effect.
    """

    script: scripts.Script | None
    arguments: Sequence[EncodableT]
    read: Callable[[Any], T]
    repeatable: bool = False
    blocks: float = 0.0
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """A flow's wish to send a call now and to read its reply later, by `Collect`."""

    channel: Any
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Collect:
    """A flow's wish for the reply of the earliest call that was posted on a channel."""

    channel: Any


@dataclass(frozen=True, slots=True)
class Pause:
    """A flow's wish to go on later, in so many seconds."""

    seconds: float


Step = Call[Any] | Post | Collect | Pause
#: What client code is made of: it yields steps, is sent their results, and returns a value.
Flow = Generator[Step, Any, T]


def script_call(
    name: str,
    arguments: Sequence[EncodableT],
    read: Callable[[Any], T],
    *,
    repeatable: bool = False,
) -> Call[T]:
    """Ask for one script; `arguments` are those of its head, in order."""
    return Call(scripts.script(name), arguments, read, repeatable)


def command(arguments: Sequence[EncodableT], read: Callable[[Any], T], *, blocks: float = 0.0) -> Call[T]:
    """Ask for one plain command that only reads, or that a second run does not change."""
    return Call(None, arguments, read, repeatable=True, blocks=blocks)
