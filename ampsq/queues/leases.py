"""What a subscription's client holds: leases that are acknowledged in batches, settled one by one, and renewed.

Acknowledgements may be added from any thread, and `flush` may run beside the other flows of a subscription.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ampsq.base.errors import Rejected, rejection
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.queues import lease_period
from ampsq.protocol.reads.settlements import settled_here
from ampsq.protocol.request import Pause
from ampsq.queues.registration import Registration, SubscriptionSpec
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.calls.queues import Verb
    from ampsq.protocol.request import Call
    from ampsq.publishing.settlements import Settlements
    from ampsq.queues.message import MessageView

__all__ = ["SENT_WITHIN", "LeaseTable", "Parts", "SettlementKeeper", "group_by_queue"]

_log = logging.getLogger("ampsq")

#: Seconds for which a queue's lease period is taken to be the same.
_READ_PERIOD = 1.0
#: Seconds between two looks whether another thread's acknowledgements are answered.
_SENDING = 0.001
#: What a repeated call may be answered because its first run did it. What was cancelled is no longer ours, and an
#: extension leaves the lease as it is. Others may have ended the lease, too: the queue tells who did.
_ALREADY = ("AMPSQ_ALREADY_ACKED",)
_DONE: dict[Verb, tuple[str, ...]] = {
    "acknowledged": _ALREADY,
    "expired": _ALREADY,
    "cancelled": ("AMPSQ_ALREADY_ACKED", "AMPSQ_STALE_LEASE"),
}
#: Seconds before a call was found to be unanswered within which it was sent: time to repeat it is within.
SENT_WITHIN = 120.0
#: The parts of a delivered message's head; see `ampsq.queues.message.MessageView`.
Parts = list[bytes]


def group_by_queue(messages: list[Parts]) -> dict[bytes, tuple[list[bytes], list[bytes]]]:
    """Sort messages by queue, as `take` and `unsubscribe` send them: refs and tokens."""
    queues = {parts[0] for parts in messages}
    return {
        queue: (
            [parts[5] for parts in messages if parts[0] == queue],
            [parts[1] for parts in messages if parts[0] == queue],
        )
        for queue in queues
    }


class SettlementKeeper(Protocol):
    """A publisher that keeps acknowledgements.

    Attributes:
        settlements: those of the instance where it publishes now.
    """

    settlements: Settlements


class LeaseTable(Registration):
    """The messages that one subscription holds, and how they leave it.

    Args:
        instance: the instance's name.
        client: the client's name, whose heartbeats are the subscription's.
        wanted: what it asks for at first.

    Attributes:
        late: the acknowledgements of a batch that came too late, newest last.
    """

    def __init__(self, instance: str, client: str, wanted: SubscriptionSpec) -> None:
        super().__init__(client, wanted)
        self.instance = instance
        self.late: deque[Rejected] = deque(maxlen=1000)
        #: Keeps acknowledgements until they are answered, if somebody asked for that.
        self.settlements: Settlements | None = None
        # Whose they are, wherever it publishes.
        self._keeper: SettlementKeeper | None = None
        # queue -> token -> ref of everything leased to us, as far as we know
        self._held: dict[bytes, dict[bytes, bytes]] = {}
        # queue -> its lease period in ms, when to read that again, when to extend again
        self._renewals: dict[bytes, tuple[int, float, float]] = {}
        self._acks: deque[Parts] = deque()
        self._acks_since = 0.0
        # One for each flow that has acknowledgements drained and not answered
        self._senders: set[object] = set()
        # queue and ref whose acknowledgement may have been done by a call that was never answered -> since when
        self._unanswered: dict[tuple[bytes, bytes], float] = {}

    def keep_in(self, keeper: SettlementKeeper | None) -> None:
        """Let a publisher keep acknowledgements until they are answered and persisted."""
        self._keeper = keeper
        self.settlements = keeper.settlements if keeper is not None else None

    def acknowledge(self, message: MessageView) -> bool:
        """Add to the next batch; True when it is full and should be flushed now. A barrier has no lease to end."""
        if message.is_barrier:
            return False
        if not self._acks:
            self._acks_since = time.monotonic()
        self._acks.append(message.parts)
        return len(self._acks) >= 2 * BATCH

    def acks_waiting(self) -> float:
        """Seconds for which the oldest collected acknowledgement has waited; 0 when there is none."""
        return time.monotonic() - self._acks_since if self._acks else 0.0

    async def settle(self, message: MessageView, verb: Verb, period: int | None, reason: str | None = None) -> None:
        """Settle one message at once; raises what the server answers. A barrier has no lease to settle."""
        why = checked_reason(reason)
        if not message.is_barrier:
            for refusal in (await self._settle([message.parts], verb, period, why)).values():
                raise refusal

    async def acknowledge_all(self, messages: Sequence[MessageView]) -> list[Rejected | None]:
        """Acknowledge leased messages of one queue, a batch at most, in one call; gives what is refused of each."""
        refused = await self._settle([message.parts for message in messages], "acknowledged")
        return [refused.get(message.parts[5]) for message in messages]

    async def _settle(
        self, messages: list[Parts], verb: Verb, period: int | None = None, why: str = ""
    ) -> dict[bytes, Rejected]:
        """Settle messages of one queue at once; gives what is refused, by ref."""
        refs, tokens = [parts[5] for parts in messages], [parts[1] for parts in messages]
        call = calls.settle(verb, messages[0][0], refs, tokens, period=period, by=self.id, reason=why)
        kept = self.settlements if verb != "extended" else None
        started = time.monotonic()
        with kept.keeping(verb, messages, period, self.id, why) if kept is not None else contextlib.nullcontext():
            try:
                refused = await call
            finally:
                # Also when nobody knows whether it was done: from here on the lease may lapse, it is not renewed.
                if verb != "extended":
                    self._drop_leases(messages)
        codes = _DONE.get(verb, ()) if call.repeated else ()
        ended = {ref for ref, code in refused if code in codes}
        # Asked twice, and the first one did it: that is the answer.
        mine = await self._ended_here(messages[0][0], verb, ended, started)
        return {ref: self._refusal(ref, code) for ref, code in refused if ref not in mine}

    async def _ended_here(self, queue: bytes, verb: Verb, refs: set[bytes], since: float) -> set[bytes]:
        """Return those of some refs whose lease an earlier run of our own call ended, sent at that moment or later."""
        if not refs:
            return set()
        seconds = time.monotonic() - since
        return await settled_here(self.instance, queue.decode(), self.id, verb, refs, seconds=seconds)

    async def send_acks(self) -> None:
        """Send the acknowledgements collected so far; what another thread is sending is its own."""
        while True:
            sender = object()
            self._senders.add(sender)
            try:
                acks = self._drain()
                if not acks:
                    return
                await self._settle_acks(acks)
            finally:
                self._senders.discard(sender)

    async def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait for those that another thread is sending.

        That ends with its call, which has a deadline. What it could not send is collected again, and sent here.
        """
        await self.send_acks()
        others = frozenset(self._senders)
        if others:
            while others & self._senders:
                await Pause(_SENDING)
            await self.send_acks()

    def _drain(self) -> list[Parts]:
        """At most two batches of what was collected; another thread may add to it and drain it meanwhile."""
        acks: list[Parts] = []
        with contextlib.suppress(IndexError):
            while len(acks) < 2 * BATCH:
                acks.append(self._acks.popleft())
        if self.settlements is not None and acks:
            try:
                self.settlements.keep("acknowledged", acks, None, self.id)
            except BaseException:
                self._acks.extendleft(reversed(acks))
                raise
        return acks

    def abandon_acks(self) -> None:
        """Leave what was acknowledged and not answered to who keeps it, if anybody does."""
        if self.settlements is not None:
            self.settlements.abandon(list(self._acks))

    def unanswered(self) -> list[Parts]:
        """What was acknowledged, as far as nobody said that it was done."""
        return list(self._acks)

    async def _flush_beyond(self, number: int) -> None:
        while len(self._acks) > number:
            await self._settle_acks(self._drain())

    async def _settle_acks(self, acks: list[Parts]) -> None:
        """Acknowledge what was drained, batch by batch; what is not answered, however that ends, is collected again."""
        left = acks
        try:
            while left:
                batch, queue = left[:BATCH], left[0][0]
                of_queue = [parts for parts in batch if parts[0] == queue]
                refs, tokens = [parts[5] for parts in of_queue], [parts[1] for parts in of_queue]
                call: Call[list[tuple[bytes, str]]] = calls.settle("acknowledged", queue, refs, tokens, by=self.id)
                started = time.monotonic()
                refused = await call
                left = [parts for parts in batch if parts[0] != queue] + left[BATCH:]
                await self._answered(of_queue, refused, since=started if call.repeated else None)
        except BaseException:
            self._acknowledge_again(left)
            raise

    async def _answered(self, acks: list[Parts], refused: list[tuple[bytes, str]], *, since: float | None) -> None:
        """Note what was refused of a batch. It is answered, also where it is not to be learnt any more why."""
        try:
            if refused:
                await self._note_late(acks, refused, since=since)
        finally:
            self._forget(acks)

    def _acknowledge_again(self, acks: list[Parts]) -> None:
        since = time.monotonic() - SENT_WITHIN
        for parts in acks:
            self._unanswered.setdefault((parts[0], parts[5]), since)
        self._acks.extendleft(reversed(acks))

    def _refusal(self, ref: bytes, code: str) -> Rejected:
        error = rejection(code) or Rejected(code=code)
        return type(error)(ref=ref.decode(), subscription=self.id, queue=self.name)

    async def _note_late(self, acks: list[Parts], refused: list[tuple[bytes, str]], *, since: float | None) -> None:
        """Note which acknowledgements of a batch came too late.

        Args:
            acks: the batch.
            refused: ref and code of what was refused.
            since: when the call was sent first, if it was sent again.
        """
        mine = await self._acknowledged_before(acks, {ref for ref, code in refused if code in _ALREADY}, since)
        for ref, code in refused:
            if ref in mine:
                continue
            error = self._refusal(ref, code)
            self.late.append(error)
            _log.warning("late acknowledgement: %s", error)

    async def _acknowledged_before(self, acks: list[Parts], refs: set[bytes], since: float | None) -> set[bytes]:
        """Return those of some refs of a batch that a call which was not answered acknowledged."""
        asked: dict[bytes, tuple[set[bytes], float]] = {}
        for parts in acks if refs else ():
            queue, ref = parts[0], parts[5]
            sent = self._unanswered.get((queue, ref), since)
            if ref in refs and sent is not None:
                some, earliest = asked.get(queue, (set[bytes](), sent))
                asked[queue] = some | {ref}, min(earliest, sent)
        mine: set[bytes] = set()
        for queue, (some, earliest) in asked.items():
            mine |= await self._ended_here(queue, "acknowledged", some, earliest)
        return mine

    def _forget(self, messages: list[Parts]) -> None:
        if self.settlements is not None:
            self.settlements.answered(messages)
        self._drop_leases(messages)

    def _drop_leases(self, messages: list[Parts]) -> None:
        nothing: dict[bytes, bytes] = {}
        for parts in messages if self._unanswered else ():
            self._unanswered.pop((parts[0], parts[5]), None)
        for parts in messages:
            self._held.get(parts[0], nothing).pop(parts[1], None)

    async def renew(self) -> None:
        """Extend every lease that is held here by its queue's period, three times a period."""
        for queue, held in list(self._held.items()):
            if held:
                await self._renew(queue, held)

    async def _renew(self, queue: bytes, held: dict[bytes, bytes]) -> None:
        period, read_at, extend_at = self._renewals.get(queue, (0, 0.0, 0.0))
        now = time.monotonic()
        if now >= read_at:
            found = await lease_period(self.instance, queue.decode())
            extend_at = extend_at if found == period else now
            period, read_at = found, now + _READ_PERIOD
        if period and now >= extend_at:
            extend_at = now + period / 3000
            items = list(held.items())
            for first in range(0, len(items), BATCH):
                tokens, refs = zip(*items[first : first + BATCH], strict=True)
                refused = await calls.settle("extended", queue, refs, tokens, period=period)
                lost = {ref for ref, _ in refused}
                for token, ref in items[first : first + BATCH]:
                    if ref in lost:
                        held.pop(token, None)
        self._renewals[queue] = (period, read_at, extend_at)
