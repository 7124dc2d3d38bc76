"""The progress of actions, and their events that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.calls.actions import SourcePosition
from ampsq.protocol.replies import pairs
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "ActionProgress",
    "StoredEvent",
    "count_failed",
    "due_retries",
    "failed_numbers",
    "first_retry",
    "first_timeout",
    "read_failed",
    "read_failed_event",
    "read_progress",
    "read_source_position",
]

_READ: Final = f"{FIELDS['read']} "


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """The progress of an action.

    Attributes:
        done: events on which it acted to the end.
        error: why the last one failed, or why the action waited last; empty: never.
        read: source -> entries of it that are done.
    """

    done: int
    error: str
    read: dict[str, int]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event that failed, as it is stored.

    Attributes:
        revision: how often it was written.
        text: the event, JSON.
    """

    revision: int
    text: bytes


def read_progress(instance: str, action: str) -> Call[ActionProgress]:
    """Read how far an action has come in all its sources."""
    return command(["HGETALL", key(instance, "action", action)], _progress)


def _progress(reply: RawHash) -> ActionProgress:
    fields = {name.decode(): value for name, value in pairs(reply)}
    read = {name.removeprefix(_READ): int(value) for name, value in fields.items() if name.startswith(_READ)}
    error = fields.get(FIELDS["error"], b"").decode(errors="replace")
    return ActionProgress(int(fields.get(FIELDS["done"], b"0")), error, read)


def read_source_position(instance: str, action: str, source: str) -> Call[SourcePosition]:
    """Read where an action is in a source; at the beginning of one that it has not seen yet."""

    def read(reply: list[bytes | None]) -> SourcePosition:
        cursor, sequence, number = reply
        return SourcePosition(cursor.decode() if cursor else "0-0", int(sequence or 0), int(number or 0))

    names = [f"{FIELDS[field]} {source}" for field in ("cursor", "sequence_of", "read")]
    return command(["HMGET", key(instance, "action", action), *names], read)


def count_failed(instance: str, action: str) -> Call[int]:
    """Count the events of an action that failed."""
    return command(["HLEN", key(instance, "failed", action)], int)


def failed_numbers(instance: str, action: str) -> Call[list[int]]:
    """Read the numbers of the events of an action that failed, in the order in which they did first."""
    return command(["HKEYS", key(instance, "failed", action)], lambda reply: sorted(map(int, reply)))


def read_failed(instance: str, action: str, numbers: Sequence[int]) -> Call[list[StoredEvent | None]]:
    """Read events that failed; None in the place of one that is not there any more."""

    def read(reply: list[bytes | None]) -> list[StoredEvent | None]:
        return [_event(text) for text in reply]

    return command(["HMGET", key(instance, "failed", action), *numbers], read)


def read_failed_event(instance: str, action: str, number: int) -> Call[StoredEvent | None]:
    """Read one event that failed; None where it is not there any more."""
    return command(["HGET", key(instance, "failed", action), number], _event)


def _event(value: bytes | None) -> StoredEvent | None:
    if not value:
        return None
    revision, _, text = value.partition(b" ")
    return StoredEvent(int(revision), text)


def first_retry(instance: str, action: str) -> Call[float | None]:
    """Read when the first of an action's failed events is to be tried again, ms; None: there is none."""
    return command(
        ["ZRANGE", key(instance, "retries", action), 0, 0, "WITHSCORES"],
        lambda reply: float(reply[1]) if reply else None,
    )


def first_timeout(instance: str, action: str) -> Call[float | None]:
    """Read when the first of an action's conditions has lasted for its time, ms; None: there is none."""
    return command(
        ["ZRANGE", key(instance, "waits", action), 0, 0, "WITHSCORES"],
        lambda reply: float(reply[1]) if reply else None,
    )


def due_retries(instance: str, action: str, until: int, most: int) -> Call[list[int]]:
    """Read the numbers of the failed events that are to be tried again up to a moment, ms, the first ones."""

    def read(reply: list[bytes]) -> list[int]:
        return [int(number) for number in reply]

    return command(["ZRANGE", key(instance, "retries", action), "-inf", until, "BYSCORE", "LIMIT", 0, most], read)
