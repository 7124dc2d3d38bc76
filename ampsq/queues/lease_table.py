"""The lease table of one subscription: the messages that it holds, until they are settled, and their acknowledgements.

It is written as flows, for threads and for asyncio, which may run beside each other and beside those of the inbox.
Acknowledgements may be added from any thread. What is rarer stands in `settling`, `late_acknowledgements` and
`lease_renewal`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Closed
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.encoding import batch_of
from ampsq.protocol.limits import BATCH
from ampsq.protocol.request import Pause
from ampsq.queues.late_acknowledgements import LateAcknowledgements
from ampsq.queues.latency_samples import LatencySamples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampsq.protocol.calls.queues import LeaseRun, MessagesByQueue, Parts
    from ampsq.publishing.settlements import SettlementKeeper, Settlements
    from ampsq.queues.registration import Registration

__all__ = ["LeaseTable", "by_queue"]

#: Batches of groups of which is kept that they came back.
_ENDED_BATCHES: Final = 1000
#: Seconds between two looks whether another thread's acknowledgements are answered.
_SENDING: Final = 0.001


def by_queue(messages: Iterable[Parts]) -> MessagesByQueue:
    """Sort messages by queue, as `take` and `unsubscribe` send them."""
    found: MessagesByQueue = {}
    for parts in messages:
        found.setdefault(parts[0], []).append(parts)
    return found


class LeaseTable:
    """The messages that one subscription holds, and how they leave it.

    Args:
        registration: the subscription's.
        origin: the instance that delivers the messages, and its incarnation.

    Attributes:
        registration, origin: these.
        held: queue -> token -> ref of everything leased to us, as far as we know.
        in_runs: token -> the run in which a message was delivered.
        acks: acknowledgements collected and not sent.
        late: those that came too late.
        samples: how long some of the messages took.
        measured: token -> a message that this is measured of, part of `samples`.
        waiting: what was picked up and not handed out, the parts of each head and its body.
        ended_batches: batches of groups that came back, so that no message of them is begun; the last thousand.
        settlements: keeps acknowledgements until they are answered, if somebody asked for that.
        keeper: whose these are, wherever it publishes.
        left_for: told of what is acknowledged here since the client went on at another instance; None: it works here.
    """

    def __init__(self, registration: Registration, origin: str) -> None:
        self.registration, self.origin = registration, origin
        self.held: dict[bytes, dict[bytes, bytes]] = {}
        self.in_runs: dict[bytes, LeaseRun] = {}
        self.acks: deque[Parts] = deque()
        self.late = LateAcknowledgements(registration)
        self.samples = LatencySamples(registration.clock)
        self.measured = self.samples.measured
        self.waiting: deque[tuple[Parts, bytes]] = deque()
        self.ended_batches: dict[tuple[bytes, bytes], None] = {}
        self.settlements: Settlements | None = None
        self.keeper: SettlementKeeper | None = None
        self.left_for: Callable[[Parts], None] | None = None
        self._acks_since = 0.0
        # One for each flow that has acknowledgements drained and not answered
        self._senders: set[object] = set()

    @property
    def number_held(self) -> int:
        """Number of messages that are leased to us, as far as we know."""
        return sum(map(len, list(self.held.values())))

    def keep_in(self, keeper: SettlementKeeper | None) -> None:
        """Let a publisher keep acknowledgements until they are answered and persisted."""
        self.keeper = keeper
        self.settlements = keeper.settlements if keeper is not None else None

    def acknowledge(self, parts: Parts) -> bool:
        """Add to the next batch; True when it is full and should be sent now. A barrier has no lease to end.

        Raises:
            Closed: the leases have ended.
        """
        if self.left_for is not None:
            self.left_for(parts)
            return False
        if self.registration.closed:
            self.registration.check_process()
            raise Closed("this subscription was closed, and its unacknowledged messages went back to their queues")
        if parts[2] == b"0":
            return False
        if parts[1] in self.measured:
            self.samples.acknowledged(parts)
        if not self.acks:
            self._acks_since = time.monotonic()
        self.acks.append(parts)
        return len(self.acks) >= 2 * BATCH

    def acks_waiting(self) -> float:
        """Seconds for which the oldest collected acknowledgement has waited; 0 when there is none."""
        return time.monotonic() - self._acks_since if self.acks else 0.0

    def drain(self) -> MessagesByQueue:
        """At most a batch of what was collected; another thread may add to it and drain it meanwhile."""
        drained: MessagesByQueue = {}
        with contextlib.suppress(IndexError):
            for _ in range(BATCH):
                parts = self.acks.popleft()
                drained.setdefault(parts[0], []).append(parts)
        if self.settlements is not None and drained:
            try:
                self.settlements.keep("acknowledged", [*chain(*drained.values())], None, self.registration.id)
            except BaseException:
                self.collect_again(drained, may_have_run=False)
                raise
        return drained

    def take_out_acks(self, messages: Iterable[Parts]) -> list[Parts]:
        """Take messages out of the next batch, that are settled at once; gives those that were in it."""
        taken: list[Parts] = []
        for parts in messages if self.acks else ():
            # Another thread may be sending it.
            with contextlib.suppress(ValueError):
                self.acks.remove(parts)
                taken.append(parts)
        return taken

    async def flush(self, *, waits: bool = True) -> None:
        """Send the acknowledgements collected so far; what is not answered, however that ends, is collected again.

        Args:
            waits: also wait for those that another thread is sending. That ends with its call, which has a deadline;
                what it could not send is collected again, and sent here.
        """
        while self.acks:
            sender = object()
            left: MessagesByQueue = {}
            # Before anything is drained: another flush finds the acknowledgements, or who sends them.
            self._senders.add(sender)
            try:
                left = self.drain()
                for queue in list(left):
                    us, some, refused = self.registration.id, left[queue], list[tuple[bytes, str]]()
                    if self.in_runs:
                        groups = calls.acknowledgement_groups({queue: some}, self.in_runs)
                        sent = [calls.acknowledge_group(group, us) for group in groups]
                    else:
                        refs, tokens = [parts[5] for parts in some], [parts[1] for parts in some]
                        sent = [calls.settle("acknowledged", queue, refs, tokens, by=us)]
                    started = time.monotonic()
                    for call in sent:
                        refused += await call
                    since = started if any(call.repeated for call in sent) else None
                    await self.answered({queue: left.pop(queue)}, refused, since=since)
            except BaseException:
                self.collect_again(left, may_have_run=True)
                raise
            finally:
                self._senders.discard(sender)
        if waits and (others := frozenset(self._senders)):
            while others & self._senders:
                await Pause(_SENDING)
            await self.flush(waits=False)

    def collect_again(self, acks: MessagesByQueue, *, may_have_run: bool) -> None:
        """Let the next call acknowledge what was drained; an earlier one may have done it, or was not made."""
        if may_have_run:
            self.late.note_unanswered(acks)
        for some in acks.values():
            self.acks.extendleft(reversed(some))

    async def answered(
        self, acks: MessagesByQueue, refused: list[tuple[bytes, str]], *, since: float | None = None
    ) -> None:
        """Note what was refused of a batch. It is answered, also where it is not to be learnt any more why.

        Args:
            acks: the batch, whose leases are not held any more.
            refused: ref and code of what was refused.
            since: when the call was sent first, if it was sent again.
        """
        if refused:
            refused = self._spell_out(acks, refused, may_have_run=since is not None)
        try:
            if refused:
                await self.late.note(acks, refused, since=since)
        finally:
            if self.settlements is not None:
                self.settlements.answered([*chain(*acks.values())])
            if self.late.unanswered:
                self.late.forget(acks)
            in_runs = self.in_runs
            for queue, some in acks.items():
                held = self.held.get(queue, {})
                for parts in some:
                    held.pop(parts[1], None)
                    in_runs.pop(parts[1], None)

    def _spell_out(
        self, acks: MessagesByQueue, refused: list[tuple[bytes, str]], *, may_have_run: bool
    ) -> list[tuple[bytes, str]]:
        """Collect again what was acknowledged of runs that are over, to be named one by one; gives the others."""
        over = {int(token) for token, code in refused if code == calls.RUN_OVER}
        if not over:
            return refused
        for queue, some in list(acks.items()):
            runs = [self.in_runs.get(parts[1]) for parts in some]
            again = [parts for parts, run in zip(some, runs, strict=True) if run is not None and run.first in over]
            for parts in again:
                del self.in_runs[parts[1]]
            acks[queue] = [parts for parts in some if parts not in again]
            self.collect_again({queue: again}, may_have_run=may_have_run)
        return [each for each in refused if each[1] != calls.RUN_OVER]

    def drop(self, messages: MessagesByQueue) -> None:
        """Hold these leases no more: nobody renews them."""
        self.late.forget(messages)
        for queue, some in messages.items():
            self.samples.forget(some)
            for parts in some:
                self.held.get(queue, {}).pop(parts[1], None)
                self.in_runs.pop(parts[1], None)

    def end_batch(self, parts: Parts) -> None:
        """Begin with no more messages of a batch: this one of it comes back, and those behind it with it."""
        batch = batch_of(parts)
        if batch is None:
            return
        self.ended_batches[batch] = None
        if len(self.ended_batches) > _ENDED_BATCHES:
            del self.ended_batches[next(iter(self.ended_batches))]
        for each in list(self.waiting):
            if batch_of(each[0]) == batch:
                # Another thread may have handed it out meanwhile.
                with contextlib.suppress(ValueError):
                    self.waiting.remove(each)
                self.drop({batch[0]: [each[0]]})

    def without_ended(self, elements: list[bytes]) -> list[bytes]:
        """Return heads and bodies in turn without those of batches that came back while they were on their way."""
        kept: list[bytes] = []
        at = 0
        while at < len(elements):
            parts = elements[at].split(b" ", 5)
            parts[5:] = parts[5].split(b"\n", 1)
            # A run has as many bodies as refs.
            end = at + 1 + len(parts[5].split())
            if batch_of(parts) not in self.ended_batches:
                kept += elements[at:end]
            at = end
        return kept

    def may_begin(self, parts: Parts) -> bool:
        """Return whether to begin with a message that was handed out; one whose batch came back is held no more."""
        batch = batch_of(parts)
        if batch is None or (batch not in self.ended_batches and parts[1] in self.held.get(batch[0], ())):
            return True
        self.drop({batch[0]: [parts]})
        return False

    def abandon_acks(self) -> None:
        """Leave what was acknowledged and not answered to who keeps it, if anybody does."""
        if self.settlements is not None:
            self.settlements.abandon(list(self.acks))

    async def give_back(self, messages: list[Parts]) -> None:
        """Return messages that nobody began to process, uncounted; takes out of the list what has gone back."""
        while messages:
            some = by_queue(messages[:BATCH])
            for queue, of_queue in some.items():
                self.samples.forget(of_queue)
                refs, tokens = [parts[5] for parts in of_queue], [parts[1] for parts in of_queue]
                await calls.settle("given_back", queue, refs, tokens, by=self.registration.id)
            # Only now: a call that failed is made again by the next fetch.
            del messages[:BATCH]
            await self.answered(some, [])
