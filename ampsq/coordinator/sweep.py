"""Duty: what is due. Lapsed leases, delayed messages, work that a bounded call left over."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from ampsq.base.errors import ServerFull
from ampsq.protocol.calls import duties as duty_calls

if TYPE_CHECKING:
    from ampsq.transport.store import Store

__all__ = ["SweepDue"]

#: Longest pause, seconds: an entry may be made that is due before the one that was next.
_LONGEST = 0.1


class SweepDue:
    """Sweeps the timetable, and shows consumers that somebody does."""

    name = "sweep"

    def run_once(self, store: Store) -> float:
        """Sweep until nothing more is due, at most a hundred bounded calls."""
        # A full server refuses the sign, and then consumers sweep too, which does no harm; sweeping itself it allows.
        with contextlib.suppress(ServerFull):
            store.call(duty_calls.show_life(store.instance, secrets.token_hex(4)))
        for _ in range(100):
            more, pause = store.call(duty_calls.sweep())
            if not more:
                return min(pause if pause is not None else _LONGEST, _LONGEST)
        return 0.0
