"""The client's half of a subscription: what it holds, when it asks, what it acknowledges. No waiting is done here.

`SubscriptionCore` is written as flows, so that `ampsq.client.client` and `ampsq.client.async_client` share all of it.
The flows of one subscription run one at a time, `flush` excepted. What is held and settled is in `ampsq.queues.leases`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from ampsq.base.errors import Rejected, Unavailable, UnknownSubscription
from ampsq.catalog.suggestions import explain_no_queue, with_suggestions
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.encoding import document_of
from ampsq.protocol.limits import BARRIERS_KEPT, BATCH
from ampsq.protocol.reads.instance import life_sign
from ampsq.protocol.reads.queues import queue_topics
from ampsq.protocol.reads.subscriptions import find_subscription, subscription_load
from ampsq.protocol.request import Collect, Post
from ampsq.queues.leases import SENT_WITHIN, LeaseTable, Parts, group_by_queue
from ampsq.queues.registration import SubscriptionSpec

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import ReplaceReply, SubscribeRequest, TakeReply
    from ampsq.protocol.request import Call
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.pipeline import Pipeline

__all__ = ["SubscriptionCore"]

_log = logging.getLogger("ampsq")

#: Seconds of one blocked read: without a coordinator, and with one.
_SHORT_BLOCK, _LONG_BLOCK = 1.0, 5.0
#: Rounds of what should end soon; more than this is not chance.
_RACES = 50
#: Least share of a backlog that is worth asking for ahead: smaller batches cost the server more than waiting.
_PIPELINED = 32
#: A server writes a reply beyond 64 kB only after it has read the next request; below, it works ahead of us.
_REPLY_BYTES = 60_000


class SubscriptionCore(LeaseTable):
    """One subscription as its client knows it.

    Args:
        instance: the instance's name.
        name: a queue, or a regular expression of queues.
        asked: the backlog asked for.
        client: the client's name, whose heartbeats are the subscription's.
        text: its filter; None: everything.
        renewed: leases are extended as long as the client lives.
        longest_block: seconds of one blocked read at most; a connection is noticed to be dead that much later.

    Attributes:
        id: the subscription's name on the instance; another one after it had to be made again.
        max_backlog: the effective backlog: the least of what was asked and of the queues' limits.
        buffer: picked up and not yet handed out: the parts of the head, and the body.
        closed: whether nobody uses it any more.
        left: whether the server has ended it, too.
    """

    def __init__(
        self,
        instance: str,
        name: str,
        asked: int,
        client: str,
        *,
        text: str | None = None,
        renewed: bool = False,
        longest_block: float = _LONG_BLOCK,
    ) -> None:
        super().__init__(instance, client, SubscriptionSpec.of(name, asked, text))
        self.renewed = renewed
        self.buffer: deque[tuple[Parts, bytes]] = deque()
        self.closed, self.left = False, False
        self._reply_limit = BATCH
        # takes sent ahead, and the acknowledgements that they carry
        self._posted: deque[tuple[Call[TakeReply], list[Parts]]] = deque()
        # queue and token of the barriers that came last
        self._barriers: deque[tuple[bytes, bytes]] = deque(maxlen=BARRIERS_KEPT)
        # a wish that the server has not confirmed, its number, and the last tokens delivered under former ones
        self._replacing: SubscriptionSpec | None = None
        self._wishes = 0
        self._former: dict[bytes, int] = {}
        self._unwanted: list[Parts] = []
        # the last take gave nothing because messages are still being judged
        self._unfinished = False
        # a call was never answered that may have delivered messages to us; nothing is posted then
        self._outcome_unknown = False
        self._attended = ""
        self._longest_block = longest_block
        self._block = min(_SHORT_BLOCK, longest_block)
        self._next_check = time.monotonic() + _SHORT_BLOCK

    # -- registering

    def copy_for(self, instance: str, client: str) -> SubscriptionCore:
        """The same wish at another instance, as yet unknown there."""
        wanted = self._replacing or self.spec
        text = wanted.filter.text if wanted.filter is not None else None
        copy = SubscriptionCore(
            instance, wanted.name, wanted.asked, client,
            text=text, renewed=self.renewed, longest_block=self._longest_block,
        )  # fmt: skip
        copy.keep_in(self._keeper)
        return copy

    @with_suggestions("queue", explain=explain_no_queue)
    async def replace(self, pipeline: Pipeline | AsyncPipeline, name: str, asked: int, text: str | None) -> None:
        """Ask for something else from now on; leases stay, what nobody began to process and is not wanted goes back.

        Nothing that does not match is handed out afterwards, however late it comes: what was delivered under a former
        wish is judged here when it is picked up. When the server cannot be reached, it is done as soon as it can.
        """
        self._replacing = SubscriptionSpec.of(name, asked, text)
        self._wishes += 1
        await self._replace(pipeline)

    async def _replace(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Make the wish that is pending the one that counts."""
        wanted, number = self._replacing, self._wishes
        if wanted is None:
            return

        def replace(request: SubscribeRequest) -> Call[ReplaceReply]:
            return calls.replace(self.id, number, request)

        try:
            replaced = await self.matched(wanted, replace)
            while replaced.unfinished:
                replaced = await self.matched(wanted, replace)
        except UnknownSubscription:
            self.spec, self._replacing = wanted, None
            await self._lost(pipeline)
            return
        except Rejected:
            self._replacing = None
            raise
        self.spec, self._replacing = wanted, None
        self.max_backlog = replaced.max_backlog
        for queue, token in replaced.tokens.items():
            self._former[queue] = max(token, self._former.get(queue, 0))
        await self._judge_buffer()
        await self.tell_cut()

    async def _judge_buffer(self) -> None:
        """Of what was picked up and not handed out, only what is wanted stays."""
        self.buffer.extend([item for item in self._empty_buffer() if self._is_wanted(*item)])
        await self._return_unwanted()

    def keep_again(self) -> None:
        """Let who keeps acknowledgements do so where it publishes now."""
        self.keep_in(self._keeper)

    def _empty_buffer(self) -> list[tuple[Parts, bytes]]:
        """Take everything out, one by one: other threads may hand messages out meanwhile."""
        waiting = []
        with contextlib.suppress(IndexError):
            while True:
                waiting.append(self.buffer.popleft())
        return waiting

    def _is_wanted(self, parts: Parts, body: bytes) -> bool:
        """Whether a message may be handed out; one that was delivered under a former wish may have to go back."""
        queue = parts[0].decode()
        if int(parts[1]) > self._former.get(parts[0], 0):
            return True
        wanted = self.spec
        if wanted.covers(queue) and (wanted.filter is None or wanted.filter.matches(document_of(parts, body))):
            return True
        if parts[2] != b"0":
            self._unwanted.append(parts)
        return False

    async def _return_unwanted(self) -> None:
        """Give back, uncounted, what was delivered under a former wish and is not wanted."""
        while self._unwanted:
            some = self._unwanted[:BATCH]
            for queue, (refs, tokens) in group_by_queue(some).items():
                await calls.settle("given_back", queue, refs, tokens, by=self.id)
            # Only now: a call that failed is made again by the next fetch.
            del self._unwanted[: len(some)]
            self._forget(some)

    async def _lost(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Begin anew: what was picked up and not handed out is back in its queues, or will be."""
        if self.closed:
            # Another thread or task ended it while this one was fetching; nobody would end the next one.
            self.give_up()
            return
        _log.warning("subscription %s to %r is gone: subscribing again", self.id, self.name)
        while self._posted:
            with contextlib.suppress(UnknownSubscription):
                await self._collect(pipeline)
        self.buffer.clear()
        self._unwanted.clear()
        self._held.clear()
        self._outcome_unknown = False
        await self.register()

    # -- picking up

    async def fetch(self, pipeline: Pipeline | AsyncPipeline, wait: float) -> None:
        """Fill the buffer, carrying the acknowledgements collected.

        While messages keep coming, half of the backlog is asked for ahead: the server makes the next batch while this
        one is worked on. When there are none, waits for a push at most `wait` seconds, in one blocked read.
        """
        await self._flush_beyond(BATCH)
        share = max(min(self.max_backlog, BATCH), 1)
        if share >= _PIPELINED:
            share = min((share + 1) // 2, self._reply_limit)
        try:
            await self._replace(pipeline)
            if self._outcome_unknown:
                await self._resume()
            got = await self._fetch_ahead(pipeline, share)
            if self._outcome_unknown:
                await self._resume()
                got += await self._take(share)
            until = time.monotonic() + wait
            while not got and self._unfinished and time.monotonic() < until:
                got = await self._take(share)
            if not got and wait > 0:
                await self._wait_for_push(wait)
            if self._unwanted:
                await self._return_unwanted()
            if not got and not self._posted and time.monotonic() >= self._next_check:
                await self._check_coordinator()
        except UnknownSubscription:
            await self._lost(pipeline)

    async def _fetch_ahead(self, pipeline: Pipeline | AsyncPipeline, share: int) -> int:
        """Take what was asked for ahead, or at once, and ask ahead again while messages keep coming."""
        if self._posted:
            # First send, then read: the server is at work again while this reply is read and its messages handled.
            await self._post(pipeline, share)
            got = await self._collect(pipeline)
        else:
            got = await self._take(share)
            if share < self.max_backlog and 2 * got >= share:
                await self._post(pipeline, share)
        while self._posted and (not got or self._outcome_unknown):
            got += await self._collect(pipeline)
        return got

    async def _take(self, wanted: int) -> int:
        """One round trip; gives the number of messages."""
        acks = self._drain()
        call = calls.take(self.id, wanted, group_by_queue(acks))
        started = time.monotonic()
        try:
            taken = await call
        except UnknownSubscription:
            await self._settle_acks(acks)
            raise
        except BaseException:
            self._note_outcome_unknown(acks)
            raise
        got = await self._taken(taken, acks, since=started if call.repeated else None)
        if call.repeated:
            await self._resume()
        return got

    async def _taken(self, taken: TakeReply, acks: list[Parts], *, since: float | None) -> int:
        self._keep(taken.elements)
        self._unfinished = taken.unfinished
        await self._answered(acks, taken.refused, since=since)
        return len(taken.elements) // 2

    async def _post(self, pipeline: Pipeline | AsyncPipeline, wanted: int) -> None:
        acks = self._drain()
        call = calls.take(self.id, wanted, group_by_queue(acks))
        self._posted.append((call, acks))
        try:
            await Post(pipeline, call)
        except Unavailable:
            self._note_posted_unknown()
        except BaseException:
            self._note_posted_unknown()
            raise

    async def _collect(self, pipeline: Pipeline | AsyncPipeline) -> int:
        """The reply of the call that was sent ahead. When it is lost, those of all others behind it are too."""
        try:
            taken = await Collect(pipeline)
        except Unavailable:
            self._note_posted_unknown()
            return 0
        except UnknownSubscription:
            await self._settle_acks(self._earliest_posted()[1])
            raise
        except BaseException:
            self._note_posted_unknown()
            raise
        call, acks = self._earliest_posted()
        if call is None:
            # Given up meanwhile: what this delivered goes back when the subscription ends.
            return 0
        # Refused at first, it was made again by itself: what a lost reply of that had delivered is asked for.
        self._outcome_unknown = self._outcome_unknown or call.repeated
        return await self._taken(taken, acks, since=time.monotonic() - SENT_WITHIN if call.repeated else None)

    def _earliest_posted(self) -> tuple[Call[TakeReply] | None, list[Parts]]:
        """Take out the call that was sent first, and its acknowledgements; who gives up may be another thread."""
        try:
            return self._posted.popleft()
        except IndexError:
            return None, []

    def _note_posted_unknown(self) -> None:
        unknown: list[Parts] = []
        while self._posted:
            unknown += self._earliest_posted()[1]
        self._note_outcome_unknown(unknown)

    def _note_outcome_unknown(self, acks: list[Parts]) -> None:
        """A call was not answered, and may have run or not: acknowledge again, and ask for what it delivered."""
        self._outcome_unknown = True
        self._acknowledge_again(acks)

    def _keep(self, elements: list[bytes]) -> None:
        held, queue, buffer = self._held, b"", self.buffer
        tokens: dict[bytes, bytes] = {}
        for i in range(0, len(elements), 2):
            parts = elements[i].split(b" ", 5)
            if parts[0] != queue:
                queue = parts[0]
                tokens = held.setdefault(queue, {})
            if b"\n" in parts[5]:
                parts[5:] = parts[5].split(b"\n", 1)
            if parts[2] == b"0":
                # A barrier: no lease. Its token is remembered, so that a resume does not push it again.
                self._barriers.append((parts[0], parts[1]))
            else:
                tokens[parts[1]] = parts[5]
            if not self._former or self._is_wanted(parts, elements[i + 1]):
                buffer.append((parts, elements[i + 1]))
        if elements:
            self._reply_limit = max(_REPLY_BYTES // (len(elements[0]) + len(elements[1]) + 32), 1)

    async def _wait_for_push(self, wait: float) -> None:
        seconds, wanted = min(wait, self._block), max(min(self.max_backlog, BATCH), 1)
        call = calls.wait_for_push(self.instance, self.id, wanted, seconds)
        try:
            elements = await call
        except BaseException:
            self._note_outcome_unknown([])
            raise
        plain = [i for i in range(0, len(elements), 2) if elements[i].split(b" ", 5)[4] != b"r"]
        # Kept before anything is asked for again: what is not held here by then would come twice.
        self._keep([text for i in plain for text in elements[i : i + 2]])
        if call.repeated:
            await self._resume()
        if len(plain) * 2 < len(elements):
            # Bodies that stayed in the log: as after a lost reply, the server pushes them again and `take` fills them.
            await self._resume()
            await self._take(wanted)

    async def _check_coordinator(self) -> None:
        """When idle for a while: where no coordinator is at work, do its duties for our own queues."""
        sign = await life_sign(self.instance)
        alive, self._attended = bool(sign) and sign != self._attended, sign
        self._block = min(_LONG_BLOCK if alive else _SHORT_BLOCK, self._longest_block)
        self._next_check = time.monotonic() + self._block
        load = await subscription_load(self.instance, self.id)
        if load.leased > sum(map(len, self._held.values())):
            # A blocked read that the server thought alive may have swallowed a push.
            await self._resume()
        if alive:
            return
        await self._sweep()
        for queue in load.queues:
            topics = await queue_topics(self.instance, queue.decode())
            await calls.scan_foreign_entries(dict.fromkeys(topics[:BATCH], ""))

    async def _resume(self) -> None:
        """After a lost reply: what is leased to us and not here is pushed again. Nothing is posted then."""
        self._outcome_unknown = True
        load = await subscription_load(self.instance, self.id)
        for queue in load.queues:
            cursor = "0"
            while True:
                tokens = [*self._held.get(queue, {}), *(token for name, token in self._barriers if name == queue)]
                cursor = await calls.resume(self.id, queue, cursor, tokens)
                if cursor == "0":
                    break
        self._outcome_unknown = False

    # -- ending

    async def give_back(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Ask for no more, and return what nobody began to process, uncounted."""
        # Without a subscription, what it held is back in its queues, or will be.
        with contextlib.suppress(UnknownSubscription):
            await self._collect_all(pipeline)
            self.max_backlog = await calls.resize(self.id, 0)
            while True:
                taken = await calls.take(self.id, BATCH, {})
                self._keep(taken.elements)
                if not taken.elements:
                    break
            self._unwanted += [parts for parts, _ in self._empty_buffer() if parts[2] != b"0"]
            await self._return_unwanted()
        self.buffer.clear()
        self._unwanted.clear()

    async def close(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Send what is acknowledged, give back what is unstarted, end the subscription."""
        self.closed = True
        try:
            await self._collect_all(pipeline)
            await self.flush()
        except BaseException:
            self.abandon_acks()
            raise
        await self.unsubscribe()

    def give_up(self) -> None:
        """Read no reply any more; what calls that were sent ahead acknowledge is acknowledged again by `leave`."""
        if self._posted:
            self._note_posted_unknown()

    async def leave(self) -> None:
        """End what nobody waits for any more: send what is acknowledged, then as `close`."""
        try:
            await self.send_acks()
        except BaseException:
            self.abandon_acks()
            raise
        await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """Let the server end it, giving back what is unstarted; once more where that was not answered."""
        # Barriers hold no lease.
        self._unwanted += [parts for parts, _ in self._empty_buffer() if parts[2] != b"0"]
        # In one call, so that nothing given back can be dispatched to this subscription again.
        while await calls.unsubscribe(self.id, group_by_queue(self._unwanted)):
            self._unwanted = []
        self.left = True
        if any(self._held.values()):
            await self._sweep()

    async def end_unanswered(self) -> bool:
        """End a subscription that was asked for by who did not wait for the answer; whether there was one."""
        self.id = self.id or await find_subscription(self.instance, self.client)
        if self.id:
            await self.unsubscribe()
        return bool(self.id)

    async def _collect_all(self, pipeline: Pipeline | AsyncPipeline) -> None:
        while self._posted:
            with contextlib.suppress(UnknownSubscription):
                await self._collect(pipeline)
        if self._outcome_unknown:
            # What was delivered and never arrived is pushed again, so that it goes back as uncounted.
            with contextlib.suppress(UnknownSubscription):
                await self._resume()

    async def _sweep(self) -> None:
        for _ in range(_RACES):
            more, _ = await calls.sweep()
            if not more:
                return
