"""Work that an idle subscription does where no coordinator is there to do it, and how long it may wait for messages."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NotPermitted
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.keepalive import LONGEST_HEARTBEAT, OVERDUE
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import is_attended
from ampsq.protocol.reads.queues import DueEntry, queue_topics, read_timetable
from ampsq.protocol.reads.subscriptions import SubscriptionLoad, subscription_load

if TYPE_CHECKING:
    from ampsq.queues.registration import Registration

__all__ = ["LONGEST_WAIT", "IdleDuties"]

#: Seconds of one blocked read: without a coordinator, and with one.
_SHORT_WAIT: Final = 1.0
_LONG_WAIT: Final = 5.0
#: The same where signs of life are answered with that all is well: what is not ends the read. Only where the system
#: looks itself whether an idle connection still stands.
LONGEST_WAIT: Final = 60.0 if hasattr(socket, "TCP_KEEPIDLE") else _LONG_WAIT
#: Seconds for which such an answer holds: two of the next ones may be lost.
_HOLDS: Final = 2.5 * LONGEST_HEARTBEAT / 1000
#: Rounds of what should end soon; more than this is not chance.
_ROUNDS: Final = 50


class IdleDuties:
    """The coordinator's duties for the queues of one subscription.

    Args:
        registration: the subscription's.
        longest_wait: seconds of one blocked read at most where nobody says that all is well.

    Attributes:
        wait: seconds of one blocked read that nobody ends where something is wrong.
        is_attended: whether a coordinator was at work when that was looked at last.
        looks_itself: it also looks where signs of life are answered with that all is well. At first so where it has a
            bell, whose ringing may be lost with a connection, and is in no number then.
    """

    def __init__(self, registration: Registration, longest_wait: float) -> None:
        self._registration, self._longest = registration, longest_wait
        self.wait = min(_SHORT_WAIT, longest_wait)
        self.is_attended, self.looks_itself = False, registration.has_bell
        self._first_due: list[DueEntry] = []
        self._next_look = time.monotonic() + _SHORT_WAIT
        self._is_well_until = 0.0

    @property
    def longest_wait(self) -> float:
        """Seconds of one blocked read that is ended where something is wrong."""
        return LONGEST_WAIT if time.monotonic() < self._is_well_until else self.wait

    @property
    def are_due(self) -> bool:
        """Return whether it is time to look again."""
        return time.monotonic() >= self._next_look

    def told(self, *, is_well: bool) -> bool:
        """Note the answer to a sign of life; True where a look is needed that nobody makes by itself.

        Args:
            is_well: a coordinator is at work and not late, and nothing is leased that was not picked up.
        """
        if not self.is_attended:
            # Whoever reads looks each second.
            return False
        if is_well:
            self._next_look = self._is_well_until = time.monotonic() + _HOLDS
        elif not self.are_due:
            self._next_look = self._is_well_until = 0.0
            return True
        return False

    async def look(self) -> SubscriptionLoad:
        """See whether a coordinator is at work; gives what the server knows of the subscription."""
        instance = self._registration.instance
        self.is_attended = await self._is_attended(instance)
        self.wait = min(_LONG_WAIT if self.is_attended else _SHORT_WAIT, self._longest)
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
        return not first or first != before or await server_time() - first[0].at < OVERDUE

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
