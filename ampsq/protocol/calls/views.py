"""The rows of a view, and what its keeper writes beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.protocol.reads.views import MADE, PENDING, STATE
from ampsq.protocol.replies import plain
from ampsq.protocol.request import Call, command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "begin_rows",
    "end_rows",
    "forget_maker",
    "note_complete",
    "note_left_out",
    "note_maker",
    "note_pending",
    "read_maker",
    "read_pending",
    "write_rows",
]


def begin_rows(instance: str, view: str) -> Call[int]:
    """Say that not all rows are there: who keeps the view now has not read everything yet."""
    return command(["HDEL", key(instance, "view", view), STATE], int)


def note_complete(instance: str, view: str, definition: str) -> Call[int]:
    """Say that all rows of a definition are there, by its fingerprint, and that it made them."""
    return command(["HSET", key(instance, "view", view), STATE, definition, MADE, definition], int)


def read_maker(instance: str, view: str) -> Call[bytes | None]:
    """Read the fingerprint of the definition that made the rows; None: not one alone did."""
    return command(["HGET", key(instance, "view", view), MADE], plain)


def note_maker(instance: str, view: str, definition: str) -> Call[int]:
    """Say which definition made all rows that there are."""
    return command(["HSET", key(instance, "view", view), MADE, definition], int)


def forget_maker(instance: str, view: str) -> Call[int]:
    """Say that not one definition alone made the rows."""
    return command(["HDEL", key(instance, "view", view), MADE], int)


def read_pending(instance: str, view: str) -> Call[bytes | None]:
    """Read the changes that somebody began to publish; None: there are none."""
    return command(["HGET", key(instance, "view", view), PENDING], plain)


def note_pending(instance: str, view: str, changes: bytes) -> Call[int]:
    """Write the changes that are about to be published."""
    return command(["HSET", key(instance, "view", view), PENDING, changes], int)


def write_rows(instance: str, view: str, rows: Mapping[str, bytes]) -> Call[int]:
    """Write rows, by their group."""
    return command(["HSET", key(instance, "view", view), *(item for row in rows.items() for item in row)], int)


def end_rows(instance: str, view: str, gone: Iterable[str]) -> Call[int]:
    """Remove the rows of groups that have ended; nothing is about to be published any more."""
    return command(["HDEL", key(instance, "view", view), PENDING, *gone], int)


def note_left_out(instance: str, view: str, count: int) -> Call[int]:
    """Write down how many messages a view leaves out, since their bodies are more than expressions read."""
    return command(["HSET", key(instance, "view", view), "left_out", count], int)
