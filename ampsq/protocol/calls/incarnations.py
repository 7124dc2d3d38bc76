"""The calls of instances that begin a new incarnation and recover, and of those that have heard of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.replies import name_set, text, texts
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.protocol.replies import RawHash

__all__ = [
    "IncarnationStep",
    "RecoveryNotes",
    "begin_incarnation",
    "close_incarnations",
    "closed_incarnations",
    "end_connections",
    "end_recovery",
    "is_recovering",
    "note_fetched",
    "note_left_out",
    "read_recovery_notes",
    "recover",
    "recovery_word",
]

_FROM: Final = "from "
_WITHOUT: Final = "without "


class IncarnationStep(NamedTuple):
    """One step of beginning an incarnation: the instance's origin with it, and whether more steps are to be made."""

    origin: str
    has_more: bool


def begin_incarnation(incarnation: str) -> Call[IncarnationStep]:
    """Say that what was recorded so far is of the last incarnation, one step."""
    return script_call(
        "begin_incarnation",
        ["", incarnation],
        lambda reply: IncarnationStep(reply[0].decode(), bool(reply[1])),
        repeatable=True,
    )


def end_connections(kind: str) -> Call[int]:
    """End all connections of a kind, ``normal`` or ``pubsub``, but this one; gives how many."""
    return command(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"], int)


def recover(origins: Iterable[str]) -> Call[str]:
    """Tell an instance of incarnations that it had; gives the word under which it recovers, "" where it does not."""
    return script_call("begin_recovery", ["", *origins], bytes.decode, repeatable=True)


def end_recovery(word: str, queues: Iterable[str]) -> Call[int]:
    """Let queues that are held go on; gives how many are held still.

    Args:
        word: under which the instance recovers.
        queues: those that go on; none: all.
    """
    return script_call("end_recovery", ["", word, *queues], int, repeatable=True)


def close_incarnations(instance: str, origins: Iterable[str]) -> Call[int]:
    """Let an instance take nothing more that was read of these incarnations of others."""
    return command(["SADD", key(instance, "closed"), *origins], int)


def closed_incarnations(instance: str) -> Call[set[str]]:
    """Read the incarnations of others that are over, as far as an instance was told."""
    return command(["SMEMBERS", key(instance, "closed")], name_set)


def recovery_word(instance: str) -> Call[str]:
    """Read the word under which an instance recovers, "" where it does not."""
    return command(["HGET", key(instance, "instance"), FIELDS["recovering"]], text)


def is_recovering(instance: str, queue: str) -> Call[bool]:
    """Ask whether a queue is held until its instance has recovered."""
    return command(["HEXISTS", key(instance, "queue", queue), FIELDS["recovering"]], bool)


@dataclass(frozen=True, slots=True)
class RecoveryNotes:
    """An instance's note of the instance that it waits for.

    Attributes:
        fetched: an instance that everything was read of -> its group.
        left_out: destinations that are not waited for, by the operator's word.
    """

    fetched: dict[str, str]
    left_out: frozenset[str]


def read_recovery_notes(instance: str, word: str) -> Call[RecoveryNotes]:
    """Read what was noted under a word of recovery; what was noted under others counts for nothing."""

    def read(reply: RawHash) -> RecoveryNotes:
        notes = {name: note.partition(" ") for name, note in texts(reply).items()}
        known = {name: group for name, (of, _, group) in notes.items() if of == word}
        fetched = {name.removeprefix(_FROM): group for name, group in known.items() if name.startswith(_FROM)}
        left_out = frozenset(name.removeprefix(_WITHOUT) for name in known if name.startswith(_WITHOUT))
        return RecoveryNotes(fetched, left_out)

    return command(["HGETALL", key(instance, "recovery")], read)


def note_fetched(instance: str, word: str, peer: str, group: str) -> Call[int]:
    """Note that an instance has all that a peer has, durable, and that the peer takes nothing more of the last."""
    return command(["HSET", key(instance, "recovery"), f"{_FROM}{peer}", f"{word} {group}"], int)


def note_left_out(instance: str, word: str, destination: str) -> Call[int]:
    """Note that a destination is not waited for."""
    return command(["HSET", key(instance, "recovery"), f"{_WITHOUT}{destination}", word], int)
