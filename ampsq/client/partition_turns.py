"""Turns of partitions: whose bell rang, which is visited next, and how many messages a visit may take.

A subscription over partitions has one backlog. It is lent to one partition at a time, for one call, as credits: how
many messages may be held of it afterwards. A credit is lent again once the server has confirmed that its message is
settled. So all partitions together never lease more, whatever is lost on the way: a call that was not answered keeps
its credits until the partition has said what came of it, which is asked first. Of one that is away for longer than its
server keeps a client that shows no life, what it may have leased counts no more, since the others are to go on.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Unavailable
from ampsq.protocol.keepalive import SESSION_TIMEOUT
from ampsq.protocol.limits import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.base.errors import AmpsqError
    from ampsq.queues.lease_table import LeaseTable

__all__ = ["PartitionTurns"]

_log = logging.getLogger("ampsq")
#: Visits, and seconds, after which the next partition whose bell rang has its turn.
_VISITS: Final = 100
_SECONDS: Final = 0.1
#: Seconds between two looks at the limits that the partitions have told.
_FOLLOWS: Final = 1.0


class PartitionTurns:
    """The turns of the partitions that one subscription has. At first each is to be visited.

    Args:
        tables: the lease table of each partition.
        asked: how many messages all may have leased together.

    Attributes:
        max_backlog: the same, where the queues' limits allow as many.

        current: the partition that was visited last, whose messages are handed out.
        away: those that cannot be reached, which have no turn, each with the moment since when.
    """

    def __init__(self, tables: Sequence[LeaseTable], asked: int) -> None:
        self._tables = tables
        # What the queues allow one subscription holds in each partition.
        self._limits: list[int] = []
        self.max_backlog = self._asked = 0
        self._follows_at = 0.0
        self.resize(asked)
        self.current = 0
        self.away: dict[int, float] = {}
        # Those whose bells rang, in that order; each once.
        self._ringing: deque[int] = deque(range(len(tables)))
        self._rang: dict[int, int] = {}
        # Those that may hold messages, and the credits of those of which nobody knows what they have leased.
        self._holding: set[int] = set()
        self._unknown: dict[int, int] = {}
        self._numbers = count(1)
        self._former: int | None = None
        # Whether the bell of the partition that was visited last rang since that visit began.
        self._rang_meanwhile = False
        self._visits, self._until = 0, 0.0

    def resize(self, asked: int) -> None:
        """Take another backlog from now on. What is leased beyond it stays; no credit is lent until enough is settled.

        Args:
            asked: how many messages all may have leased together; 0: none, so that nothing comes.
        """
        self._asked = asked
        self.follow()
        if self.max_backlog < asked:
            _log.warning(
                "max_backlog %d is cut to %d: max_per_subscription_backlog of its queues, in all partitions together",
                asked,
                self.max_backlog,
            )

    def follow(self) -> None:
        """Take the limits that the partitions have told last: their queues may have others now."""
        self._limits = [each.registration.max_backlog for each in self._tables]
        self.max_backlog = min(self._asked, sum(self._limits))

    def ring(self, number: int, at: int = 0) -> None:
        """Note that a partition is to be visited: its bell rang, or may have.

        Args:
            number: the partition.
            at: when it rang, ms; 0: nobody knows, so it is as if now.
        """
        self.away.pop(number, None)
        # The mark may have overtaken the answer to a visit that had found all before.
        self._rang_meanwhile = self._rang_meanwhile or number == self.current
        if number in self._ringing:
            return
        # Bells are not heard in their order, where several rang at once.
        place = len(self._ringing)
        while at and place > 1 and self._rang.get(self._ringing[place - 1], 0) > at:
            place -= 1
        self._ringing.insert(place, number)
        self._rang[number] = at

    def lose(self, number: int) -> None:
        """Note that a partition cannot be reached; it has its turn again when its bell rings."""
        self.away.setdefault(number, time.monotonic())
        if number in self._ringing:
            self._ringing.remove(number)

    def next(self, now: float) -> int | None:
        """Return the partition whose turn it is: first one whose answer is missing; None: no bell rang.

        Args:
            now: by the monotonic clock.
        """
        if now >= self._follows_at:
            self._follows_at = now + _FOLLOWS
            self.follow()
        for number in self._unknown:
            if number not in self.away:
                return number
        if not self._ringing:
            return None
        if self._ringing[0] == self.current and (self._visits >= _VISITS or now >= self._until):
            self._ringing.rotate(-1)
            # From here on it comes behind the others.
            self._rang.pop(self.current, None)
            self._visits, self._until = 0, now + _SECONDS
        for _ in self._tables:
            if not self._is_at_limit(self._ringing[0]):
                break
            # What is free may be lent to others until some of it is settled.
            self._ringing.rotate(-1)
        if self._ringing[0] != self.current:
            self._visits, self._until = 0, now + _SECONDS
        return self._ringing[0]

    def _is_at_limit(self, number: int) -> bool:
        """Return whether as much of a partition is being worked on as its queues allow one subscription."""
        table = self._tables[number]
        return table.number_held - len(table.acks) >= self._limits[number] > 0

    def goes_on(self, now: float) -> bool:
        """Return whether the partition that was visited last still has its turn, so that no bell changes what is next.

        Args:
            now: by the monotonic clock.
        """
        return (
            bool(self._ringing)
            and self._ringing[0] == self.current
            and self._visits < _VISITS
            and now < self._until
            and not self._unknown
        )

    def credits_of(self, number: int) -> int:
        """Return how many messages may be held of a partition, with those that are."""
        left = self.max_backlog
        # Mostly there is one, or none.
        for each in tuple(self._holding):
            if each != number:
                left -= self._lent_to(each)
        return min(left, self._limits[number])

    def is_worth(self, number: int) -> bool:
        """Return whether there are credits for a visit, or its answer is missing."""
        return number in self._unknown or self._room_of(number) > 0

    def _room_of(self, number: int) -> int:
        """Number of messages that a visit may take, with those whose acknowledgements it carries."""
        table = self._tables[number]
        return self.credits_of(number) - table.number_held + len(table.acks)

    def is_full(self, number: int) -> bool:
        """Return whether a visit of a partition makes a full call."""
        return self._room_of(number) >= max(min(self.max_backlog, self._limits[number], BATCH), 1)

    def acknowledged(self, besides: int | None = None) -> Iterable[int]:
        """Return the partitions whose credits come back when their acknowledgements are sent, those away left out."""
        return [
            each
            for each in list(self._holding)
            if each != besides and each not in self.away and self._tables[each].acks
        ]

    def begin(self, number: int) -> tuple[int, int]:
        """Begin a visit; gives its credits and its number, which rises."""
        self.current, self._rang_meanwhile = number, False
        self._visits += 1
        self._former = self._unknown.get(number)
        lent = max(self.credits_of(number), 0)
        # As many as may be leased there, whatever comes of the call.
        self._unknown[number] = max(lent, self._lent_to(number))
        self._holding.add(number)
        return lent, next(self._numbers)

    def fail(self, number: int, error: AmpsqError) -> None:
        """Note that a visit has failed: what was never sent lends nothing."""
        if isinstance(error, Unavailable) and not error.may_have_run:
            self._unknown.pop(number, None)
            if self._former is not None:
                self._unknown[number] = self._former

    def end(self, number: int, leased: int, *, is_done: bool) -> None:
        """Note the answer to a visit.

        Args:
            number: the partition.
            leased: how many messages it has leased; more than arrived here come with the next visit.
            is_done: all that was there was found; else another visit follows, as where its bell rang meanwhile.
        """
        if leased > self._tables[number].number_held:
            self._unknown[number] = leased
        else:
            del self._unknown[number]
            if is_done and not self._rang_meanwhile and number in self._ringing:
                self._ringing.remove(number)

    def _lent_to(self, number: int) -> int:
        table, lent = self._tables[number], self._unknown.get(number, 0)
        held = table.number_held
        if number in self.away and time.monotonic() - self.away[number] > SESSION_TIMEOUT / 1000:
            return max(held - len(table.acks), 0)
        if not lent and not held:
            self._holding.discard(number)
        return max(lent, held)
