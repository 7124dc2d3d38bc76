"""Leases that are extended as long as the client lives, by the thread that shows that it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.queues import lease_period

if TYPE_CHECKING:
    from ampsq.queues.lease_table import LeaseTable

__all__ = ["LeaseRenewal"]

#: Seconds for which a queue's lease period is taken to be the same.
_READ_PERIOD: Final = 1.0
#: An extension is sent so many times a period.
_TIMES: Final = 3


class _Plan(NamedTuple):
    """A plan for the leases of one queue, by the monotonic clock: its period, ms, and two moments."""

    period: int = 0
    read_at: float = 0.0
    extend_at: float = 0.0


class LeaseRenewal:
    """Extends the leases that a subscription holds.

    Args:
        leases: those.
        instance: the instance's name.
    """

    def __init__(self, leases: LeaseTable, instance: str) -> None:
        self._leases, self._instance = leases, instance
        self._plans: dict[bytes, _Plan] = {}

    async def renew(self) -> None:
        """Extend every lease that is held here by its queue's period, three times a period."""
        for queue, held in list(self._leases.held.items()):
            if held:
                await self._renew(queue, held)

    async def _renew(self, queue: bytes, held: dict[bytes, bytes]) -> None:
        period, read_at, extend_at = self._plans.get(queue, _Plan())
        now = time.monotonic()
        if now >= read_at:
            found = await lease_period(self._instance, queue.decode())
            extend_at = extend_at if found == period else now
            period, read_at = found, now + _READ_PERIOD
        if period and now >= extend_at:
            extend_at = now + period / 1000 / _TIMES
            items = list(held.items())
            for first in range(0, len(items), BATCH):
                tokens, refs = zip(*items[first : first + BATCH], strict=True)
                refused = await calls.settle("extended", queue, refs, tokens, period=period)
                lost = {ref for ref, _ in refused}
                for token, ref in items[first : first + BATCH]:
                    if ref in lost:
                        held.pop(token, None)
        self._plans[queue] = _Plan(period, read_at, extend_at)
