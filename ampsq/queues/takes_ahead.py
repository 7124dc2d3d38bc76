"""Takes that are sent before the reply of the one before them was read, and the acknowledgements that they carry.

The server makes the next batch while this one is worked on. When a reply is lost, those of all calls behind it are too:
what they acknowledge is acknowledged again, and what they delivered is asked for.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ampsq.base.errors import Unavailable, UnknownSubscription
from ampsq.protocol.request import Collect, Post
from ampsq.queues.late_acknowledgements import SENT_WITHIN

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import MessagesByQueue, TakeReply
    from ampsq.protocol.request import Call
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.pipeline import Pipeline

__all__ = ["AnsweredTake", "TakesAhead"]


class _Acknowledgements(Protocol):
    """A lease table, as far as calls that carry its acknowledgements need it."""

    def collect_again(self, acks: MessagesByQueue, *, may_have_run: bool) -> None: ...
    async def flush(self, *, waits: bool = True) -> None: ...


class AnsweredTake(NamedTuple):
    """A take that was sent ahead, and its reply.

    Attributes:
        taken: what was picked up.
        acks: what it acknowledged.
        since: when it was sent first, at the earliest, if it was sent again.
    """

    taken: TakeReply
    acks: MessagesByQueue
    since: float | None


class TakesAhead:
    """The takes of one subscription that are on their way.

    Args:
        leases: whose acknowledgements they carry.

    Attributes:
        posted: those that were sent, and what each acknowledges.
        outcome_unknown: a call was never answered that may have delivered messages to us; nothing is posted then.
        pays: the messages of the last batch were handled more slowly than the call behind it was answered.
    """

    def __init__(self, leases: _Acknowledgements) -> None:
        self._leases = leases
        self.posted: deque[tuple[Call[TakeReply], MessagesByQueue]] = deque()
        self.outcome_unknown = self.pays = False

    async def post(self, pipeline: Pipeline | AsyncPipeline, call: Call[TakeReply], acks: MessagesByQueue) -> None:
        """Send one."""
        self.posted.append((call, acks))
        try:
            await Post(pipeline, call)
        except Unavailable:
            self._note_posted_unknown()
        except BaseException:
            self._note_posted_unknown()
            raise

    async def collect(self, pipeline: Pipeline | AsyncPipeline) -> AnsweredTake | None:
        """Read the reply of the one that was sent first; None: it is lost."""
        try:
            taken: TakeReply = await Collect(pipeline)
        except Unavailable:
            self._note_posted_unknown()
            return None
        except UnknownSubscription:
            self._leases.collect_again(self._earliest()[1], may_have_run=False)
            await self._leases.flush(waits=False)
            raise
        except BaseException:
            self._note_posted_unknown()
            raise
        call, acks = self._earliest()
        if call is None:
            # Given up meanwhile: what this delivered goes back when the subscription ends.
            return None
        # Refused at first, it was made again by itself: what a lost reply of that had delivered is asked for.
        self.outcome_unknown = self.outcome_unknown or call.repeated
        return AnsweredTake(taken, acks, time.monotonic() - SENT_WITHIN if call.repeated else None)

    def _earliest(self) -> tuple[Call[TakeReply] | None, MessagesByQueue]:
        """Take out the call that was sent first, and its acknowledgements; who gives up may be another thread."""
        try:
            return self.posted.popleft()
        except IndexError:
            return None, {}

    def note_unknown(self, acks: MessagesByQueue) -> None:
        """A call was not answered, and may have run or not: acknowledge again, and ask for what it delivered."""
        self.outcome_unknown = True
        self._leases.collect_again(acks, may_have_run=True)

    def _note_posted_unknown(self) -> None:
        self.note_unknown({})
        while self.posted:
            self.note_unknown(self._earliest()[1])

    def give_up(self) -> None:
        """Read no reply any more; what calls that were sent ahead acknowledge is acknowledged again."""
        if self.posted:
            self._note_posted_unknown()
