"""Processes that are forked from one that has clients: what those have open is refused in the new process.

Both processes would read replies from one connection, hold the same leases, and number messages alike, of which the
server would take the second one for a repetition of the first.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from ampsq.base.errors import Closed

__all__ = ["Inherited", "closed", "refuse_in_children", "was_inherited"]


class Inherited(Protocol):
    """An open thing that a new process must not use."""

    def refuse_in_child(self) -> None:
        """Refuse all that is asked for from now on; called in the new process, in which no other thread is."""


_OPEN: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def refuse_in_children(opened: Inherited) -> None:
    """Have something refused in each process that is forked from this one."""
    _OPEN.add(opened)


def was_inherited(process: int) -> bool:
    """Return whether what a process opened came into this one by a fork.

    Args:
        process: the ID of the one that opened it.
    """
    return process != os.getpid()


def closed(what: str, process: int) -> Closed:
    """Make the error of what is used after its end.

    Args:
        what: as in "this client".
        process: the ID of the process that opened it.
    """
    if was_inherited(process):
        return Closed(
            f"{what} belongs to process {process}, from which this one, {os.getpid()}, was forked; allowed: a client "
            "that is opened in each process"
        )
    return Closed(f"{what} was closed")


def _refuse_all() -> None:
    for opened in list(_OPEN):
        opened.refuse_in_child()
    _OPEN.clear()


os.register_at_fork(after_in_child=_refuse_all)
