"""Work that an idle subscription does where no coordinator is there to do it, and how long it may wait for messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NotPermitted
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import is_attended
from ampsq.protocol.reads.queues import DueEntry, queue_topics, read_timetable
from ampsq.protocol.reads.subscriptions import SubscriptionLoad, subscription_load

if TYPE_CHECKING:
    from ampsq.queues.registration import Registration

__all__ = ["LONG_WAIT", "IdleDuties"]

#: Seconds of one blocked read: without a coordinator, and with one.
_SHORT_WAIT: Final = 1.0
LONG_WAIT: Final = 5.0
#: Milliseconds by which what is due may be late where a coordinator is at work.
_OVERDUE: Final = 2_000
#: Rounds of what should end soon; more than this is not chance.
_ROUNDS: Final = 50


class IdleDuties:
    """The coordinator's duties for the queues of one subscription.

    Args:
        registration: the subscription's.
        longest_wait: seconds of one blocked read at most; a connection is noticed to be dead that much later.

    Attributes:
        wait: seconds of one blocked read, as things are now.
        is_attended: whether a coordinator was at work when that was looked at last.
    """

    def __init__(self, registration: Registration, longest_wait: float) -> None:
        self._registration, self._longest = registration, longest_wait
        self.wait = min(_SHORT_WAIT, longest_wait)
        self.is_attended = False
        self._first_due: list[DueEntry] = []
        self._next_look = time.monotonic() + _SHORT_WAIT

    @property
    def are_due(self) -> bool:
        """Return whether it is time to look again."""
        return time.monotonic() >= self._next_look

    async def look(self) -> SubscriptionLoad:
        """See whether a coordinator is at work; gives what the server knows of the subscription."""
        instance = self._registration.instance
        self.is_attended = await self._is_attended(instance)
        self.wait = min(LONG_WAIT if self.is_attended else _SHORT_WAIT, self._longest)
        self._next_look = time.monotonic() + self.wait
        return await subscription_load(instance, self._registration.id)

    async def _is_attended(self, instance: str) -> bool:
        """Return whether a coordinator listens, and does what is due: one that was stopped still listens."""
        try:
            if not await is_attended(instance):
                return False
        except NotPermitted:
            # Of a user whose rules an older release made: as if there were none, which does no harm.
            return False
        before, first = self._first_due, await read_timetable(instance, 1)
        self._first_due = first
        return not first or first != before or await server_time() - first[0].at < _OVERDUE

    async def work(self, queues: list[bytes]) -> None:
        """Do the duties for these queues."""
        await self.sweep()
        for queue in queues:
            topics = await queue_topics(self._registration.instance, queue.decode())
            await duty_calls.scan_foreign_entries(dict.fromkeys(topics[:BATCH], ""))

    @staticmethod
    async def sweep() -> None:
        """Do what is due by the clock."""
        for _ in range(_ROUNDS):
            more, _ = await duty_calls.sweep()
            if not more:
                return
