"""One subscription at one instance, as its client knows it: how it is copied to another one, and how it ends.

`SubscriptionCore` is written as flows, so that threads and asyncio share all of it: no waiting is done here. What it
asks for is its `registration`, what it holds its `leases`, what comes its `inbox`.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from ampsq.base.errors import AmpsqError, UnknownSubscription
from ampsq.catalog.suggestions import explain_no_queue, with_suggestions
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.calls.queue_latencies import latency_lines
from ampsq.protocol.keepalive import SESSION_TIMEOUT
from ampsq.protocol.reads.subscriptions import find_subscription
from ampsq.queues.inbox import Inbox
from ampsq.queues.lease_renewal import LeaseRenewal
from ampsq.queues.lease_table import LeaseTable, by_queue
from ampsq.queues.registration import Registration, SubscriptionSpec

if TYPE_CHECKING:
    from types import EllipsisType

    from ampsq.protocol.calls.queue_latencies import Latencies
    from ampsq.transport.async_pipeline import AsyncPipeline
    from ampsq.transport.pipeline import Pipeline

__all__ = ["SubscriptionCore"]

_log = logging.getLogger("ampsq")


class SubscriptionCore:
    """One subscription at one instance.

    Args:
        instance: the instance's name.
        name: a queue, or a regular expression of queues.
        asked: the backlog asked for.
        client: the client's name, whose heartbeats are the subscription's.
        origin: the instance's name and its incarnation, whence its messages come.
        text: its filter; None: everything.
        renewed: leases are extended as long as the client lives.
        longest_wait: seconds of one blocked read at most where nobody says that all is well.
        has_bell: it is a part of one over several instances, and has no room but what visits lend it.

    Attributes:
        registration: what it asks for, and its name on the instance.
        leases: the messages that it holds.
        inbox: the messages that it picks up.
        renewal: extends the leases; None: they lapse.
    """

    def __init__(
        self,
        instance: str,
        name: str,
        asked: int,
        client: str,
        *,
        origin: str = "",
        text: str | None = None,
        renewed: bool = False,
        longest_wait: float = 5.0,
        has_bell: bool = False,
    ) -> None:
        self.registration = Registration(instance, client, SubscriptionSpec.of(name, asked, text), has_bell=has_bell)
        self.leases = LeaseTable(self.registration, origin)
        self.inbox = Inbox(self.registration, self.leases, longest_wait)
        self.renewal = LeaseRenewal(self.leases, instance) if renewed else None
        self._longest_wait = longest_wait

    def __str__(self) -> str:
        return str(self.registration)

    def copy_for(self, instance: str, client: str, origin: str) -> SubscriptionCore:
        """The same subscription at another instance, as yet unknown there."""
        wanted = self.inbox.replacement.pending or self.registration.spec
        copy = SubscriptionCore(
            instance,
            wanted.name,
            wanted.asked,
            client,
            origin=origin,
            text=wanted.filter.text if wanted.filter is not None else None,
            renewed=self.renewal is not None,
            longest_wait=self._longest_wait,
        )
        copy.leases.keep_in(self.leases.keeper)
        return copy

    @with_suggestions("queue", explain=explain_no_queue)
    async def replace(
        self,
        pipeline: Pipeline | AsyncPipeline,
        name: str | None,
        asked: int | None,
        text: str | EllipsisType | None,
    ) -> None:
        """Ask for something else from now on; see `Subscription.replace`."""
        self.inbox.replacement.ask(*self.registration.spec_with(name, asked, text))
        await self.replace_pending(pipeline)

    async def replace_pending(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Ask for what `replace` has noted and the server has not confirmed."""
        try:
            await self.inbox.replace()
        except UnknownSubscription:
            await self.inbox.begin_anew(pipeline)

    # -- ending

    def refuse_in_child(self) -> None:
        """Hand out nothing in a process that was forked from the one that subscribed."""
        self.registration.closed = True
        self.inbox.buffer.clear()

    async def give_back(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Ask for no more, and return what nobody began to process, uncounted."""
        # Without a subscription, what it held is back in its queues, or will be.
        with contextlib.suppress(UnknownSubscription):
            await self.inbox.collect_all(pipeline)
            self.registration.learn_backlog(await subscription_calls.resize(self.registration.id, 0))
            await self.inbox.give_back()
        self.inbox.buffer.clear()
        self.inbox.unwanted.clear()

    async def close(self, pipeline: Pipeline | AsyncPipeline) -> None:
        """Send what is acknowledged, give back what is unstarted, end the subscription."""
        self.registration.closed = True
        try:
            await self.inbox.collect_all(pipeline)
            await self.leases.flush()
        except BaseException:
            self.leases.abandon_acks()
            raise
        await self._unsubscribe()

    async def leave(self) -> None:
        """End what nobody waits for any more: send what is acknowledged, then as `close`."""
        try:
            await self.leases.flush(waits=False)
        except BaseException:
            self.leases.abandon_acks()
            raise
        await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        """Let the server end it, giving back what is unstarted; once more where that was not answered."""
        inbox = self.inbox
        inbox.unwanted += inbox.unstarted()
        await self._tell_latencies()
        # In one call, so that nothing given back can be dispatched to this subscription again.
        while await subscription_calls.unsubscribe(self.registration.id, by_queue(inbox.unwanted)):
            inbox.unwanted.clear()
        self.registration.left = True
        if any(self.leases.held.values()):
            await inbox.duties.sweep()

    async def _tell_latencies(self) -> None:
        """Send the server what was measured since the last sign of life; lost where it does not answer now."""
        found: dict[str, Latencies] = {}
        self.leases.samples.take(found)
        if not found:
            return
        call = subscription_calls.heartbeat(SESSION_TIMEOUT, [self.registration.id], latency_lines(found))
        call.patience = 0.0
        try:
            await call
        except AmpsqError as error:
            # Only figures are lost: the call that ends the subscription comes next, and raises what is wrong.
            _log.debug("what was measured of %s is lost: %s", self.registration.id, error)

    async def end_unanswered(self) -> bool:
        """End a subscription that was asked for by who did not wait for the answer; whether there was one."""
        us = self.registration
        us.id = us.id or await find_subscription(us.instance, us.client)
        if us.id:
            await self._unsubscribe()
        return bool(us.id)
