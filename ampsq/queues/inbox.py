"""The inbox of one subscription: it picks messages up, and keeps them until they are handed out.

It is written as flows, for threads and for asyncio, of which one runs at a time. What it picks up is held by the lease
table. Waits that carry acknowledgements stand in `acknowledging_waits`, and what is rarer in `takes_ahead` and
`replacement`.
"""

# Long: whatever way a message comes, taken, pushed or by a visit, it is kept in one way, and is asked for again in one.

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, Unavailable, UnknownSubscription
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.encoding import group_of
from ampsq.protocol.limits import BARRIERS_KEPT, BATCH
from ampsq.protocol.reads.subscriptions import subscription_load
from ampsq.queues.acknowledging_waits import AcknowledgingWaits
from ampsq.queues.idle_duties import IdleDuties
from ampsq.queues.replacement import Replacement
from ampsq.queues.takes_ahead import TakesAhead

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import MessagesByQueue, Parts, VisitReply
    from ampsq.protocol.reads.subscriptions import SubscriptionLoad
    from ampsq.queues.lease_table import LeaseTable
    from ampsq.queues.registration import Registration
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.pipeline import Pipeline

__all__ = ["Attention", "Inbox"]

_log = logging.getLogger("ampsq")

#: Least share of a backlog that is worth asking for ahead: smaller batches cost the server more than waiting.
_PIPELINED: Final = 32
#: A server writes a reply beyond 64 kB only after it has read the next request; below, it works ahead of us.
_REPLY_BYTES: Final = 60_000
#: Seconds after which the server is asked again to end a blocked read.
_ASKED_AGAIN: Final = 0.5


class Attention:
    """Sign that somebody waits for messages and has none; one for all subscriptions that are read together."""

    now = False


class Inbox:
    """Messages that one subscription picks up, and that are not handed out yet.

    Args:
        registration: the subscription's.
        leases: where what is picked up is held.
        longest_wait: seconds of one blocked read at most where nobody says that all is well.

    Attributes:
        buffer: picked up and not yet handed out: the parts of the head, and the body.
        unwanted: picked up, and to be given back.
        ahead: takes that were sent before the reply of the one before them was read.
        replacement: what the subscription asks for instead.
        duties: done while there are no messages.
        attention: of who reads it.
    """

    def __init__(self, registration: Registration, leases: LeaseTable, longest_wait: float) -> None:
        self._registration, self._leases = registration, leases
        self.buffer = leases.waiting
        self.unwanted: list[Parts] = []
        self.replacement = Replacement(registration)
        self.duties = IdleDuties(registration, longest_wait)
        self.attention = Attention()
        self._reply_limit = BATCH
        self.ahead = TakesAhead(leases)
        self._waits = AcknowledgingWaits(registration, leases, self.ahead)
        # queue and token of the barriers that came last
        self._barriers: deque[tuple[bytes, bytes]] = deque(maxlen=BARRIERS_KEPT)
        # the last take gave nothing because messages are still being judged
        self._unfinished = False
        self._answered = math.inf  # when a fetch ended last, by the monotonic clock
        # the server knows us as free, and a blocked read was answered in time with nothing: what comes is pushed
        self._is_free = False
        # somebody else wants to change the subscription: the fetch that is under way ends soon
        self._is_interrupted = False
        self._asked_to_end = 0.0  # when the server was asked last to end a blocked read

    async def fetch(self, pipeline: Pipeline | AsyncPipeline, wait: float) -> None:
        """Fill the buffer, carrying the acknowledgements collected.

        While messages keep coming and handlers are slower than the server, half of the backlog is asked for ahead: the
        server makes the next batch while this one is worked on. Faster handlers would wait in any case, and one call
        for the whole backlog costs less than two for halves. When there are no messages, waits for a push at most
        `wait` seconds, in one blocked read.
        """
        started = time.monotonic()
        handled, self._is_interrupted = started - self._answered, False
        if len(self._leases.acks) > BATCH:
            await self._leases.flush(waits=False)
        try:
            if self.replacement.pending is not None:
                await self.replace()
            if self._waits.are_unread:
                await self._waits.drop_unread(pipeline)
            if self.ahead.outcome_unknown:
                await self._resume()
            if self._waits.pay and self._may_wait(wait) and (acks := self._waits.acknowledgements()):
                await self._wait_for_push(pipeline, wait, acks)
                self._answered = time.monotonic()
                if self.duties.are_due:
                    await self._do_duties()
            else:
                share, got = await self._ask(pipeline, wait)
                self._answered = time.monotonic()
                self.ahead.pays = handled > self._answered - started
                if not got or self.ahead.outcome_unknown:
                    await self._fetch_later(pipeline, share, got, wait)
            if self.unwanted:
                await self._leases.give_back(self.unwanted)
        except UnknownSubscription:
            await self.begin_anew(pipeline)

    async def _ask(self, pipeline: Pipeline | AsyncPipeline, wait: float) -> tuple[int, int]:
        """Read the reply of a take, and send another one ahead where that pays; gives messages asked for and got."""
        share = max(min(self._registration.max_backlog, BATCH), 1)
        takes_ahead = self.ahead.pays and share >= _PIPELINED
        if takes_ahead:
            share = min((share + 1) // 2, self._reply_limit)
        if self.ahead.posted:
            if takes_ahead:
                # First send, then read: the server is at work again while this reply is read and its messages handled.
                await self._post(pipeline, share)
            return share, await self._collect(pipeline)
        got = 0 if self._is_free and self._only_waits(wait) else await self._take(share)
        if takes_ahead and 2 * got >= share:
            await self._post(pipeline, share)
        return share, got

    async def _fetch_later(self, pipeline: Pipeline | AsyncPipeline, share: int, got: int, wait: float) -> None:
        """Wait for messages where there are none; ask again where nobody knows what came of a call."""
        while self.ahead.posted and (not got or self.ahead.outcome_unknown):
            got += await self._collect(pipeline)
        if self.ahead.outcome_unknown:
            await self._resume()
            got += await self._take(share)
        until = time.monotonic() + wait
        while not got and self._unfinished and not self._is_interrupted and time.monotonic() < until:
            got = await self._take(share)
        if not got and wait > 0 and not self._is_interrupted:
            await self._wait_for_push(pipeline, wait)
        if not got and not self.ahead.posted and self.duties.are_due:
            await self._do_duties()

    async def visit(self, credits: int, number: int) -> VisitReply:  # noqa: A002  (the word of the design)
        """Take messages with room that is lent for this call alone, carrying the acknowledgements collected.

        Args:
            credits: how many messages may be held afterwards.
            number: rises with each visit, of which one runs at a time.

        Returns:
            The answer, whose messages are picked up. Where more is leased than is held, a visit is to follow.

        Raises:
            Unavailable: nobody knows what was taken; the next visit asks for it. No visit is made again by itself.
            UnknownSubscription: the server does not have it any more; `begin_anew` follows.
        """
        leases = self._leases
        if len(leases.acks) > BATCH:
            await leases.flush(waits=False)
        if self.ahead.outcome_unknown:
            await self._resume()
        acks = leases.drain()
        # What is pushed already comes whatever the credits are, since it is leased.
        call = calls.visit(self._registration.id, BATCH, acks, leases.in_runs, credits=credits, number=number)
        try:
            reply = await call
        except UnknownSubscription:
            leases.collect_again(acks, may_have_run=False)
            await leases.flush(waits=False)
            raise
        except BaseException:
            self.ahead.note_unknown(acks)
            raise
        self._keep(reply.taken.elements)
        try:
            await leases.answered(acks, reply.taken.refused)
            if reply.leased > leases.number_held:
                # What did not arrive here is pushed again, and the next visit picks it up.
                await self._resume()
            if unwanted := len(self.unwanted):
                await self._leases.give_back(self.unwanted)
                reply = reply._replace(leased=reply.leased - unwanted)
        except Unavailable as error:
            # The visit itself has run, whatever became of what follows.
            error.may_have_run = True
            raise
        return reply

    async def do_duties(self) -> bool:
        """Do the coordinator's duties for our own queues, where no coordinator is at work.

        Returns:
            Whether the server has the subscription, all that is leased to it is here, and its bell waits; else a visit
            is to follow. The mark of a bell that rang may have gone to a read that was lost with its connection.
        """
        load = await self._do_duties()
        return bool(load.queues) and load.leased <= self._leases.number_held and not load.has_rung

    async def _take(self, wanted: int) -> int:
        """One round trip; gives the number of messages."""
        self._is_free = self._waits.pay = False
        acks = self._leases.drain()
        call = calls.take(self._registration.id, wanted, acks, self._leases.in_runs)
        started = time.monotonic()
        try:
            taken = await call
        except UnknownSubscription:
            self._leases.collect_again(acks, may_have_run=False)
            await self._leases.flush(waits=False)
            raise
        except BaseException:
            self.ahead.note_unknown(acks)
            raise
        got = self._keep(taken.elements)
        self._unfinished = taken.unfinished
        await self._leases.answered(acks, taken.refused, since=started if call.repeated else None)
        if call.repeated:
            await self._resume()
        return got

    def _keep(self, elements: list[bytes]) -> int:
        """Gives the number of messages."""
        held, queue, replacement = self._leases.held, b"", self.replacement
        elements = self._leases.without_ended(elements) if self._leases.ended_batches else elements
        tokens: dict[bytes, bytes] = {}
        i, number, end = 0, 0, len(elements)
        samples = self._leases.samples
        measured = samples.until
        while i < end:
            parts = elements[i].split(b" ", 5)
            if b"\n" in parts[5]:
                parts[5:] = parts[5].split(b"\n", 1)
            elif b" " in parts[5]:
                count, measured = self._keep_run(parts, elements, i + 1, measured - number)
                measured += number
                i, number = i + 1 + count, number + count
                continue
            if parts[0] != queue:
                queue = parts[0]
                tokens = held.setdefault(queue, {})
                samples.choose_first(parts)
            if number == measured:
                samples.choose(parts)
                measured += samples.gap()
            if parts[2] == b"0":
                # A barrier: no lease. Its token is remembered, so that a resume does not push it again.
                self._barriers.append((parts[0], parts[1]))
            else:
                tokens[parts[1]] = parts[5]
            if not replacement.former or replacement.wants(parts, elements[i + 1]):
                self.buffer.append((parts, elements[i + 1]))
            elif parts[2] != b"0":
                self.unwanted.append(parts)
            i, number = i + 2, number + 1
        samples.until = measured - number
        if elements:
            self._reply_limit = max(_REPLY_BYTES // (len(elements[1]) + 96), 1)
        return number

    def _keep_run(self, head: Parts, elements: list[bytes], at: int, measured: int) -> tuple[int, int]:
        """Keep a run whose bodies begin at an element.

        Args:
            head: what its messages have in common.
            elements: of the reply.
            at: the element.
            measured: the place in the run of the next message to be measured, or beyond its end.

        Returns:
            The number of messages, and the place of the next one to be measured then.
        """
        queue, token, delivery, deadline, kind, text = head
        refs, first, leases = text.split(), int(token), self._leases
        count = len(refs)
        tokens = [b"%d" % number for number in range(first, first + count)]
        run = calls.LeaseRun(queue, first, refs[0], count)
        leases.held.setdefault(queue, {}).update(zip(tokens, refs, strict=True))
        leases.in_runs.update(dict.fromkeys(tokens, run))
        found = [
            ([queue, each, delivery, deadline, kind, ref], body)
            for each, ref, body in zip(tokens, refs, elements[at : at + count], strict=True)
        ]
        samples = leases.samples
        samples.choose_first(found[0][0])
        while measured < count:
            samples.choose(found[measured][0])
            measured += samples.gap()
        if not self.replacement.former:
            self.buffer.extend(found)
            return count, measured
        for parts, body in found:
            if self.replacement.wants(parts, body):
                self.buffer.append((parts, body))
            else:
                self.unwanted.append(parts)
        return count, measured

    async def _post(self, pipeline: Pipeline | AsyncPipeline, wanted: int) -> None:
        acks = self._leases.drain()
        await self.ahead.post(pipeline, calls.take(self._registration.id, wanted, acks, self._leases.in_runs), acks)

    async def _collect(self, pipeline: Pipeline | AsyncPipeline) -> int:
        found = await self.ahead.collect(pipeline)
        if found is None:
            return 0
        got = self._keep(found.taken.elements)
        self._unfinished = found.taken.unfinished
        await self._leases.answered(found.acks, found.taken.refused, since=found.since)
        return got

    async def collect_all(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Read the replies of all that was sent ahead, and get what was delivered and never arrived."""
        if self._waits.are_unread:
            await self._waits.drop_unread(pipeline)
        while self.ahead.posted:
            with contextlib.suppress(UnknownSubscription):
                await self._collect(pipeline)
        if self.ahead.outcome_unknown:
            # Pushed again, so that it goes back as uncounted.
            with contextlib.suppress(UnknownSubscription):
                await self._resume()

    async def give_back(self) -> None:
        """Pick up what is pushed already, and return all that nobody began to process."""
        while (taken := await calls.take(self._registration.id, BATCH, {})).elements:
            self._keep(taken.elements)
        self.unwanted += self.unstarted()
        await self._leases.give_back(self.unwanted)

    def unstarted(self) -> list[Parts]:
        """Take out what was not handed out; barriers hold no lease."""
        return [parts for parts, _ in self.empty() if parts[2] != b"0"]

    # -- where nothing comes

    async def _wait_for_push(
        self, pipeline: Pipeline | AsyncPipeline, wait: float, acks: MessagesByQueue | None = None
    ) -> None:
        """Wait for a push in one blocked read, with acknowledgements in front of it."""
        us, seconds = self._registration, min(wait, self.duties.longest_wait)
        wanted = max(min(us.max_backlog, BATCH), 1)
        call = calls.wait_for_push(us.instance, us.id, wanted, seconds)
        self._is_free = self._waits.pay = False
        self._asked_to_end = 0.0
        self.attention.now, is_lost = True, False
        try:
            # What was acknowledged since the take; from here on whoever acknowledges sees that this waits.
            if any(map(self.may_let_come, list(self._leases.acks))):
                await self._leases.flush(waits=False)
            elements = await self._waits.wait(pipeline, acks, call) if acks else await call
        except Unavailable:
            elements, is_lost = [], True
        except BaseException:
            self.ahead.note_unknown({})
            raise
        finally:
            self.attention.now = False
        if is_lost:
            self.ahead.note_unknown({})
            await self._end_lost_wait()
            return
        is_as_usual = not (call.repeated or self._unfinished or self.ahead.outcome_unknown)
        self._is_free = is_as_usual and not elements
        plain = [i for i in range(0, len(elements), 2) if elements[i].split(b" ", 5)[4] != b"r"]
        # Kept before anything is asked for again: what is not held here by then would come twice.
        self._keep([text for i in plain for text in elements[i : i + 2]])
        if call.repeated:
            await self._end_lost_wait()
            await self._resume()
        if len(plain) * 2 < len(elements):
            # Bodies that stayed in the log: as after a lost reply, the server pushes them again and `take` fills them.
            await self._resume()
            await self._take(wanted)
        else:
            self._waits.pay = is_as_usual and 0 < len(plain) < wanted

    async def end_wait(self) -> None:
        """Let the fetch that is under way in another thread or task end soon, a blocked read at once.

        To be called again until it has ended: one that only begins may be missed, and a read that is made again on
        another connection is to be ended again.
        """
        self._is_interrupted, now = True, time.monotonic()
        if not self.attention.now or now < self._asked_to_end + _ASKED_AGAIN:
            return
        self._asked_to_end = now
        # Where the server does not answer, that read ends with its time.
        call = subscription_calls.end_wait(self._registration.id)
        call.patience = 0.0
        with contextlib.suppress(AmpsqError):
            await call

    def may_let_come(self, parts: Parts) -> bool:
        """Return whether more may come once a message is settled: of its group, into its room, or a barrier.

        That a queue has barriers is known once one has come.
        """
        is_full = self._leases.number_held >= self._registration.max_backlog
        return is_full or bool(self._barriers) or group_of(parts) is not None

    async def _end_lost_wait(self) -> None:
        """End a blocked read that was lost with its connection: the server may not know, and give it the next push.

        Who began to wait first is served first, so that what ends a wait goes to the lost one. Where it has ended, that
        is in the inbox, and the next call drops it.
        """
        await subscription_calls.end_wait(self._registration.id)

    def _may_wait(self, wait: float) -> bool:
        """Return whether nothing is to be done but to acknowledge, and to wait."""
        is_busy = self.unwanted or self.ahead.posted or self.replacement.former or self.duties.are_due
        return wait > 0 and not is_busy

    def _only_waits(self, wait: float) -> bool:
        """Return whether a blocked read is enough: we have nothing to send, and a coordinator does what is due."""
        is_silent = not (self._leases.acks or self.unwanted)
        return is_silent and wait > 0 and self.duties.is_attended and not self.duties.are_due

    async def _do_duties(self) -> SubscriptionLoad:
        """Do the coordinator's duties for our own queues after an idle while, where no coordinator is at work."""
        load = await self.duties.look()
        if load.leased > self._leases.number_held:
            # A blocked read that the server thought alive may have swallowed a push.
            await self._resume()
        if not self.duties.is_attended:
            await self.duties.work(load.queues)
        return load

    async def _resume(self) -> None:
        """After a lost reply: what is leased to us and not here is pushed again. Nothing is posted then."""
        self.ahead.outcome_unknown = True
        us, held = self._registration, self._leases.held
        load = await subscription_load(us.instance, us.id)
        for queue in load.queues:
            cursor = "0"
            while True:
                tokens = [*held.get(queue, {}), *(token for name, token in self._barriers if name == queue)]
                cursor = await calls.resume(us.id, queue, cursor, tokens)
                if cursor == "0":
                    break
        self.ahead.outcome_unknown = False

    # -- something else is asked for, or everything anew

    async def replace(self) -> None:
        """Ask for what is pending; of what was picked up and not handed out, only what is wanted then stays."""
        self._is_free = self._waits.pay = False
        await self.replacement.send()
        for parts, body in self.empty():
            if self.replacement.wants(parts, body):
                self.buffer.append((parts, body))
            elif parts[2] != b"0":
                self.unwanted.append(parts)
        await self._leases.give_back(self.unwanted)
        await self._registration.tell_cut()

    def empty(self) -> list[tuple[Parts, bytes]]:
        """Take everything out, one by one: other threads may hand messages out meanwhile."""
        waiting = []
        with contextlib.suppress(IndexError):
            while True:
                waiting.append(self.buffer.popleft())
        return waiting

    async def begin_anew(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Subscribe again: what was picked up and not handed out is back in its queues, or will be."""
        us = self._registration
        if us.closed:
            # Another thread or task ended it while this one was fetching; nobody would end the next one.
            self.ahead.give_up()
            return
        _log.warning("subscription %s to %r is gone: subscribing again", us.id, us.name)
        while self.ahead.posted:
            with contextlib.suppress(UnknownSubscription):
                await self._collect(pipeline)
        self.buffer.clear()
        self.unwanted.clear()
        self._leases.held.clear()
        self._leases.in_runs.clear()
        self._leases.measured.clear()
        self.ahead.outcome_unknown = self._is_free = False
        await us.register()
