"""Waits for pushed messages that carry acknowledgements: both are sent in one write.

To settle lets the server push what waits, and whatever comes, comes by the blocked read. So who is pushed messages one
by one, or a few at a time, needs no take between two of them, which would find nothing and cost another way to the
server.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Protocol

from ampsq.base.errors import AmpsqError, Rejected
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.request import Collect, Post

if TYPE_CHECKING:
    from collections.abc import Sized

    from ampsq.protocol.calls.queues import LeaseRun, MessagesByQueue
    from ampsq.protocol.request import Call
    from ampsq.queues.registration import Registration
    from ampsq.queues.takes_ahead import TakesAhead
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.pipeline import Pipeline

__all__ = ["AcknowledgingWaits"]


class _Acknowledgements(Protocol):
    """A lease table, as far as these waits need it."""

    in_runs: dict[bytes, LeaseRun]

    @property
    def acks(self) -> Sized: ...
    def drain(self) -> MessagesByQueue: ...
    def collect_again(self, acks: MessagesByQueue, *, may_have_run: bool) -> None: ...
    async def answered(
        self, acks: MessagesByQueue, refused: list[tuple[bytes, str]], *, since: float | None = None
    ) -> None: ...


class AcknowledgingWaits:
    """The waits of one subscription that carry its acknowledgements.

    Args:
        registration: the subscription's.
        leases: whose acknowledgements they carry.
        ahead: where what was never answered is noted.

    Attributes:
        pay: the last blocked read was pushed less than there was room for, so that what comes next is pushed, too.
        are_unread: one was interrupted, and replies of it are unread.
    """

    def __init__(self, registration: Registration, leases: _Acknowledgements, ahead: TakesAhead) -> None:
        self._registration, self._leases, self._ahead = registration, leases, ahead
        self.pay = self.are_unread = False

    def acknowledgements(self) -> MessagesByQueue:
        """Take out those that a wait may carry; empty: they go with the next take."""
        leases = self._leases
        if not 0 < len(leases.acks) <= BATCH:
            return {}
        acks = leases.drain()
        # Of several queues the others would be served later, by who does what is due.
        is_of_one = [*acks] == [self._registration.name.encode()]
        if is_of_one and len(calls.acknowledgement_groups(acks, leases.in_runs)) == 1:
            return acks
        leases.collect_again(acks, may_have_run=False)
        return {}

    async def wait(
        self, pipeline: Pipeline | AsyncPipeline, acks: MessagesByQueue, read: Call[list[bytes]]
    ) -> list[bytes]:
        """Send acknowledgements and a blocked read in one write; gives what was pushed.

        Where the server refuses the first, it carries out the second all the same, which does no harm: they are sent
        again, and what they let the server push comes by that read.
        """
        leases, refused = self._leases, list[tuple[bytes, str]]()
        [group] = calls.acknowledgement_groups(acks, leases.in_runs)
        settling = calls.acknowledge_group(group, self._registration.id)
        started, self.are_unread, is_refused = time.monotonic(), True, False
        try:
            await Post(pipeline, settling, read)
            refused = await Collect(pipeline)
        except Rejected:
            # The next take carries them, and says what is wrong.
            leases.collect_again(acks, may_have_run=False)
            is_refused = True
        except BaseException:
            leases.collect_again(acks, may_have_run=True)
            raise
        since = started if settling.repeated else None
        if not refused and not is_refused:
            await leases.answered(acks, refused, since=since)
        try:
            if refused or is_refused:
                # What is leased to us may not be what we know of; the server may even have ended the subscription.
                self._ahead.outcome_unknown = True
                await subscription_calls.end_wait(self._registration.id)
            elements: list[bytes] = await Collect(pipeline)
        except BaseException:
            if refused:
                leases.collect_again(acks, may_have_run=True)
            raise
        self.are_unread = False
        if refused:
            await leases.answered(acks, refused, since=since)
        return elements

    async def drop_unread(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Read what one that was interrupted left unread; what it brought is asked for."""
        with contextlib.suppress(AmpsqError):
            await subscription_calls.end_wait(self._registration.id)
        while pipeline.open_calls:
            with contextlib.suppress(AmpsqError):
                await Collect(pipeline)
        self.are_unread = False
        self._ahead.note_unknown({})
