"""What all duties have in common: a round that is pure of timing, and the pause until the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ampsq.store import Store

__all__ = ["Duty"]


class Duty(Protocol):
    """One thing that the coordinator does over time, for one instance.

    Any number of coordinators may do the same duty at once: each round is made of calls that are safe to repeat.
    """

    name: str

    def run_once(self, store: Store) -> float:
        """Do one bounded round; returns the seconds until the next one is wanted, 0 when more is to do."""
        ...
