"""Duty: what is due. Lapsed leases, delayed messages, work that a bounded call left over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from ampsq.protocol.calls import duties as duty_calls

if TYPE_CHECKING:
    from ampsq.coordinator.duty import Happened
    from ampsq.transport.store import Store

__all__ = ["SweepDue"]

#: Bounded calls of one round.
_CALLS: Final = 20


class SweepDue:
    """Sweeps the timetable."""

    name = "sweep"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"due"})

    def run_once(self, store: Store) -> float:
        """Sweep until nothing more is due, a bounded number of bounded calls."""
        for _ in range(_CALLS):
            more, pause = store.call(duty_calls.sweep())
            if not more:
                # An entry that is made meanwhile, and is due before that, wakes whoever rests.
                return pause if pause is not None else math.inf
        return 0.0
